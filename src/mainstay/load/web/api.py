"""The API operations of load tests."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from ...task import Sealer
from ...web import Problem, in_thread
from ...web.api import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response, size_of
from ..extra import extra_needed
from ..stats.model import Summary
from . import submission
from .texts import texts_of

#: reads the results of jobs; one that a codec has encoded cannot be read here
NO_CODEC = Sealer(None)


async def get_summary(ask: ApiRequest[NoParameters, None]) -> Response:
    with extra_needed("the summary of a load test"):
        from ..handler import summary_of  # noqa: PLC0415 - an extra that most servers do without

    job = await ask.served.control.jobs.get(ask.path("id"))
    summary = await in_thread(lambda: summary_of(job, NO_CODEC), size_of(job))
    if summary is None:
        detail = f"job {job.id} ({job.name}) is {job.status} and has no numbers yet; try again later"
        raise Problem(409, "no_numbers_yet", detail, headers={"Retry-After": "2"}, job_status=job.status)
    shown = (await texts_of(ask.served.store, job, ask.site.masker)).shown(summary)
    return json_response(msgspec.to_builtins(shown))


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/jobs/{id}/summary",
        handler=get_summary,
        scope="read",
        tag="load tests",
        summary="Read the numbers of a load test: the final ones, or the latest of a running one",
        answers={200: ApiResponse(description="The numbers.", type=Summary)},
        refusals=(404, 409),
    ),
    *submission.OPERATIONS,
)
