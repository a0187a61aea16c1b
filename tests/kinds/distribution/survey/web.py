"""The route, the page and the panel of surveys."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from mainstay.model import Job
from mainstay.web.api.operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from mainstay.web.dashboard.job import Panel
from mainstay.web.dashboard.kinds import jobs_of_kind
from mainstay.web.dashboard.page import PageView


class SurveyAnswer(msgspec.Struct):
    """The answer to a survey."""

    answer: str | None


async def get_answer(request: ApiRequest[NoParameters, None]) -> Response:
    job = await request.control.jobs.get(request.path("id"))
    return json_response({"answer": None if job.result is None else msgspec.msgpack.decode(job.result)})


async def surveys(view: PageView) -> Response:
    some = await jobs_of_kind(view.served.store, "survey", cursor=None)
    return view.page("survey/surveys.html", title="Surveys", some=some)


async def question(view: PageView, job: Job) -> Panel:
    return Panel(template="survey/panel.html", data=msgspec.msgpack.decode(job.payload)["question"])


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/jobs/{id}/answer",
        handler=get_answer,
        scope="read",
        tag="surveys",
        summary="Read the answer to a survey",
        answers={200: ApiResponse(description="The answer.", type=SurveyAnswer)},
        refusals=(404,),
    ),
)
PAGES = {"/surveys": surveys}
PANELS = (question,)
