"""The history of a job, and its result."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.responses import Response

from ...clock import seconds
from ...control import JobRoutes, read_routes, read_story
from ...errors import InvalidInput, WaitTimeout
from ...lifecycle import table_of
from ...model import Job, check_id
from ...stores import Query
from ..problems import Problem
from ..threads import in_thread
from .fields import Duration, JobId, PageSize, Seq, Status
from .job_pages import shown_page, with_values
from .job_responses import AwaitedJobs, EventPage, ExplanationView, JobResult, Story, UnitPage
from .masker import Masker
from .operation import PACKED, ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .text_mask import explained, shown_job, text_mask_of
from .views import masked_event, masked_job, size_of, value_view

_LONGEST_WAIT_S = 30.0
#: masks nothing
_UNMASKED = Masker(urls=False)


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of events."""

    after: Seq = 0
    """only events with a higher number"""
    limit: PageSize = 500


class UnitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of units."""

    status: list[Status] | None = None
    limit: PageSize = 50
    cursor: JobId | None = None
    payload: bool = False


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for the result."""

    wait: Duration | None = None
    """wait until the job is settled, for this time at most; up to 30s"""


async def list_events(ask: ApiRequest[EventQuery, None]) -> Response:
    limit = min(ask.query.limit, ask.site.options.page_limit)
    job_id = ask.path("id")
    events = await ask.served.control.jobs.events(job_id, after=ask.query.after, limit=limit)
    mask = await text_mask_of(ask.served.store, (await ask.served.store.get([job_id]))[0], ask.site.masker)
    size = sum(len(event.details or "") for event in events)
    return await in_thread(
        lambda: json_response(
            EventPage(
                events=tuple(masked_event(event, mask) for event in events),
                next=events[-1].seq if len(events) == limit else None,
            )
        ),
        size,
    )


async def get_result(ask: ApiRequest[WaitQuery, None]) -> Response:
    job = await _settled(ask)
    state = table_of(job.parent).get(job.status)
    if state is None or not state.settled:
        raise Problem(
            409,
            "not_settled",
            f"job {job.id} is {job.status}, so it has no result yet; ask again later, or with ?wait=30s",
            headers={"Retry-After": "2"},
            job_status=job.status,
        )
    shown: Literal["whole", "masked", "none"]
    shown = "none" if not ask.site.masker.shows else "whole" if ask.caller.may("submit") else "masked"
    # an error is shown like the result
    masker = _UNMASKED if shown == "whole" else ask.site.masker
    visible = job if shown == "whole" else await shown_job(ask.served.store, job, masker)
    return await ask.respond(
        lambda: JobResult(
            id=job.id,
            status=job.status,
            reason=visible.reason,
            result=None if shown == "none" else value_view(job, "result", masker),
            error=visible.error,
            shown=shown,
        ),
        len(job.result or b""),
    )


async def get_story(ask: ApiRequest[NoParameters, None]) -> Response:
    job_id, control = ask.path("id"), ask.served.control
    mask = await text_mask_of(ask.served.store, (await ask.served.store.get([check_id(job_id)]))[0], ask.site.masker)
    lines = await read_story(ask.served.store, job_id, shown=mask.event)
    return json_response(Story(lines=lines, refusals=await control.jobs.refusals(job_id)))


async def explain_job(ask: ApiRequest[NoParameters, None]) -> Response:
    cluster = await ask.site.cluster_facts(ask.served)
    return json_response(await explained(ask.served.store, ask.path("id"), ask.site.masker, cluster))


async def get_routes(ask: ApiRequest[NoParameters, None]) -> Response:
    job_id, masker = ask.path("id"), ask.site.masker
    mask = await text_mask_of(ask.served.store, (await ask.served.store.get([check_id(job_id)]))[0], masker)
    found = await read_routes(ask.served.store, job_id, shown=mask.event)
    units = tuple(msgspec.structs.replace(route, unit=masker.unit(route.unit)) for route in found.units)
    return json_response(msgspec.structs.replace(found, units=units))


async def list_awaited(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(AwaitedJobs(ids=await ask.served.control.jobs.awaited(ask.path("id"))))


async def list_units(ask: ApiRequest[UnitQuery, None]) -> Response:
    job_id, query = ask.path("id"), ask.query
    await ask.served.control.jobs.get(job_id)
    status = None if query.status is None else tuple(query.status)
    limit = min(query.limit, ask.site.options.page_limit)
    units = Query(parent=job_id, status=status, oldest_first=True)
    masker = ask.site.masker
    page = await shown_page(ask.served.store, units, query.cursor, limit, masker)
    if query.payload:
        page = await with_values(ask.served.store, page)
    counts = await ask.served.control.jobs.unit_counts(job_id)
    return await ask.respond(
        lambda: UnitPage(
            units=tuple(masked_job(unit, masker, payload=query.payload) for unit in page.jobs),
            counts=counts,
            next=page.cursor,
        ),
        sum(map(size_of, page.jobs)) if query.payload else 0,
    )


async def _settled(ask: ApiRequest[WaitQuery, None]) -> Job:
    job_id, control = ask.path("id"), ask.served.control
    if ask.query.wait is None:
        return await control.jobs.get(job_id)
    wait_s = seconds(ask.query.wait, field="wait")
    if wait_s > _LONGEST_WAIT_S:
        raise InvalidInput(
            "wait",
            f"{ask.query.wait} is longer than {_LONGEST_WAIT_S:g}s, the limit; repeat the request to wait longer",
        )
    try:
        return await control.jobs.wait(job_id, ask.query.wait)
    except WaitTimeout:
        return await control.jobs.get(job_id)


def _read(path: str, handler: Any, summary: str, answer: Any, **more: Any) -> ApiOperation:
    return ApiOperation(
        method="GET",
        path=f"/jobs/{{id}}/{path}",
        handler=handler,
        scope="read",
        tag="jobs",
        summary=summary,
        answers={200: ApiResponse(description=answer.__doc__.split("\n")[0], type=answer)},
        refusals=(404, *more.pop("refusals", ())),
        **more,
    )


OPERATIONS = (
    _read("events", list_events, "Read a job's audit trail", EventPage, query=EventQuery),
    _read(
        "result",
        get_result,
        "Read the result of a job",
        JobResult,
        query=WaitQuery,
        refusals=(409,),
        about=PACKED,
        packs=True,
    ),
    _read("story", get_story, "Read a job's audit trail in words", Story),
    _read("explain", explain_job, "Explain a job: its state and the reason, and what to do", ExplanationView),
    _read("routes", get_routes, "Read on which nodes the units of a job were placed, and why they moved", JobRoutes),
    _read("awaited", list_awaited, "List the jobs that a job waits for", AwaitedJobs),
    _read(
        "units",
        list_units,
        "List the units of a job, oldest first",
        UnitPage,
        query=UnitQuery,
        about=PACKED,
        packs=True,
    ),
)
