"""Live streams of a store, of one job and of a list of jobs; the snapshot and the history of a store.

A client that reconnects sends the id of the last message that it received (`Last-Event-ID`; browsers do it by
themselves). From a job it then gets the following events, without gaps or repetitions. From a store or a list it gets
the current state.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from ...control import is_over
from ...errors import InvalidInput, MainstayError
from ...lifecycle import Event
from ...model import Job
from ...stores import JobStore, Query
from ..api.jobs import JobFilter
from ..api.masker import Masker
from ..api.operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from ..api.text_mask import TextMask, text_mask_of
from ..api.views import etag_of, masked_event, masked_job, size_of
from ..problems import Problem
from ..stores import ServedStore
from ..threads import in_thread
from .followed_jobs import FollowedJob
from .history import Sample
from .hub import LiveHub
from .messages import EndMessage, ListMessage, ProgressMessage, TroubleMessage
from .snapshot import Snapshot
from .sse import EventStream, event, event_of

#: events of a job read at a time
_PAGE = 500
#: the time before a store that does not answer is asked again
_AGAIN_S = 1.0
#: the number of an event, and whether the end was sent as well
_MARK = re.compile(r"(0|[1-9][0-9]{0,8})(-end)?")


class JobStreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of a job is sent."""

    payload: bool = False
    """include its payload, result and checkpoint"""


class ListStreamQuery(JobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list to follow."""

    oldest_first: bool = False
    limit: Annotated[int, Meta(ge=1, le=200, description="The most jobs of the list.")] = 50

    async def query(self, store: JobStore) -> Query:
        return msgspec.structs.replace(await super().query(store), oldest_first=self.oldest_first)


class SampleList(msgspec.Struct, kw_only=True):
    """The numbers of a store over the last day, in order: the last ten minutes in detail, the rest coarsely."""

    samples: list[Sample]


async def get_snapshot(ask: ApiRequest[NoParameters, None]) -> Response:
    hub: LiveHub = ask.site.hub
    name = ask.served.name
    return Response(hub.encoded(name, hub.snapshot(name)), media_type="application/json")


async def get_history(ask: ApiRequest[NoParameters, None]) -> Response:
    hub: LiveHub = ask.site.hub
    return json_response(SampleList(samples=hub.history(ask.served.name)))


async def stream_store(ask: ApiRequest[NoParameters, None]) -> Response:
    return stream_response(ask, _snapshots(ask.site.hub, ask.served.name))


async def stream_job(ask: ApiRequest[JobStreamQuery, None]) -> Response:
    job_id, served = ask.path("id"), ask.served
    after, ended = _last_event(ask.request)
    (job,) = await served.store.get([job_id])
    if job is None:
        # a deleted job still has its tombstone
        events = await served.control.jobs.events(job_id, after=0)
        return stream_response(
            ask, _tombstone([each for each in events if each.seq > after], job_id, TextMask(ask.site.masker, ()))
        )
    if ended and after == job.version and is_over(job):
        # this tells a browser not to reconnect
        return Response(status_code=204)
    return stream_response(ask, _JobStream(ask, job_id, after).messages())


async def stream_jobs(ask: ApiRequest[ListStreamQuery, None]) -> Response:
    # an invalid filter is refused here, before the stream begins
    await ask.query.query(ask.served.store)
    return stream_response(ask, _pages(ask))


def stream_response(ask: ApiRequest[Any, Any], messages: AsyncGenerator[bytes, None]) -> EventStream:
    """A stream for the caller of a request. It ends when the caller's token is revoked."""

    async def still_permitted() -> bool:
        request = ask.request
        request.state.caller = None
        try:
            await ask.site.guard.admit(request, "read")
        except Problem as problem:
            return problem.status == 429
        return True

    return EventStream(messages, still_permitted=still_permitted, clock=ask.served.store.clock)


def _last_event(request: Request) -> tuple[int, bool]:
    """The number of the last event that the client received, and whether it received the end as well."""
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return 0, False
    match = _MARK.fullmatch(given)
    if match is None:
        raise InvalidInput("Last-Event-ID", f"{given[:100]!r} is not an id of this stream, like 7")
    return int(match[1]), match[2] is not None


async def _snapshots(hub: LiveHub, name: str) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(hub.subscribe(name)) as snapshots:
        async for snapshot in snapshots:
            yield event_of("snapshot", hub.encoded(name, snapshot), snapshot.at_ms)


async def _tombstone(events: list[Event], job_id: str, mask: TextMask) -> AsyncGenerator[bytes, None]:
    for each in events:
        yield event("event", masked_event(each, mask), each.seq)
    yield _deleted(job_id)


def _deleted(job_id: str) -> bytes:
    return event("end", EndMessage(id=job_id, status=None, deleted=True))


class _JobStream:
    """The messages about one job: its events, the job after them, its progress, and its end."""

    def __init__(self, ask: ApiRequest[JobStreamQuery, None], job_id: str, after: int) -> None:
        self._served: ServedStore = ask.served
        self._following = ask.site.hub.jobs(ask.served.name)
        self._masker: Masker = ask.site.masker
        self._payload = ask.query.payload
        self._job_id = job_id
        self._seq = after
        self._sent: Job | None = None
        self._mask: TextMask | None = None

    async def messages(self) -> AsyncGenerator[bytes, None]:
        async with self._following.follow(self._job_id) as followed:
            trouble = ""
            while True:
                # the job may change while this is sent: send everything up to this row
                changed, error, row = followed.changed, followed.error, followed.row
                if followed.was_read and not error:
                    try:
                        async for message in self._news(followed, row):
                            yield message
                    except MainstayError as failed:
                        error = str(failed)
                    else:
                        if row is None or is_over(row):
                            yield self._end(row)
                            return
                if error and error != trouble:
                    yield event("trouble", TroubleMessage(detail=error))
                trouble = error
                if followed.changed is changed:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_AGAIN_S if error else None):
                            await changed.wait()

    async def _news(self, followed: FollowedJob, row: Job | None) -> AsyncGenerator[bytes, None]:
        # of a deleted job, all events that are left
        upto = None if row is None else row.version
        while upto is None or self._seq < upto:
            events = followed.recent(self._seq) if row is not None else None
            if events is None:
                events = await self._served.store.events(self._job_id, after=self._seq, limit=_PAGE)
            new_events = [each for each in events if upto is None or each.seq <= upto]
            mask = await self._text_mask()
            for each in new_events:
                # before it is sent: if the client disconnects now, it counts as sent
                self._seq = each.seq
                yield event("event", masked_event(each, mask), each.seq)
            if not new_events:
                break
        if row is None:
            return
        before = self._sent
        if before is None or before.version != row.version:
            # trimmed events do not exist any more
            self._seq = max(self._seq, row.version)
            yield await self._job_message(row, self._seq)
        elif etag_of(before) != etag_of(row):
            yield await self._report_message(before, row)
        # set last: if the store failed, the row is sent once the store is back
        self._sent = row

    async def _text_mask(self) -> TextMask:
        """From the payload, which never changes, and which followed rows lack."""
        if self._mask is None:
            (whole,) = await self._served.store.get([self._job_id])
            self._mask = await text_mask_of(self._served.store, whole, self._masker)
        return self._mask

    async def _job_message(self, row: Job, mark: int | None = None) -> bytes:
        if self._payload:
            (whole,) = await self._served.store.get([row.id])
            if whole is not None:
                row = msgspec.structs.replace(row, payload=whole.payload, result=whole.result)
        size = size_of(row) if self._payload else 0
        return await in_thread(lambda: event("job", masked_job(row, self._masker, payload=self._payload), mark), size)

    async def _report_message(self, before: Job, row: Job) -> bytes:
        if (before.progress, before.progress_ms) == (row.progress, row.progress_ms):
            return await self._job_message(row)
        return event("progress", ProgressMessage(id=row.id, progress=row.progress, progress_ms=row.progress_ms))

    def _end(self, row: Job | None) -> bytes:
        if row is None:
            return _deleted(self._job_id)
        ended = EndMessage(id=row.id, status=row.status, reason=row.reason)
        return event("end", ended, f"{row.version}-end")


async def _pages(ask: ApiRequest[ListStreamQuery, None]) -> AsyncGenerator[bytes, None]:
    """The list, then its changes: the current ids, and the jobs that are new or different."""
    query, masker = ask.query, ask.site.masker
    lists = ask.site.hub.lists(ask.served.name)
    known: dict[str, str] | None = None
    finished = True
    trouble = ""
    async with lists.follow(msgspec.json.encode(query), query.query, query.limit) as listed:
        while True:
            changed = listed.changed
            if listed.error and listed.error != trouble:
                yield event("trouble", TroubleMessage(detail=listed.error))
            elif listed.at_ms and not listed.error:
                jobs = listed.jobs
                tags = {job.id: etag_of(job) for job in jobs}
                if known is None or (list(tags.items()), listed.finished) != (list(known.items()), finished):
                    new_jobs = [job for job in jobs if known is None or known.get(job.id) != tags[job.id]]
                    shown = tuple(masked_job(job, masker, payload=False) for job in new_jobs)
                    known, finished = tags, listed.finished
                    page = ListMessage(at_ms=listed.at_ms, ids=tuple(tags), jobs=shown, finished=finished)
                    yield event("page", page, listed.at_ms)
            trouble = listed.error
            if listed.changed is changed:
                await changed.wait()


def stream_operation(path: str, handler: Any, summary: str, about: str, **more: Any) -> ApiOperation:
    """The declaration of a live stream."""
    answers = {
        200: ApiResponse(description="Server-sent events.", type=str, media="text/event-stream"),
        **more.pop("answers", {}),
    }
    return ApiOperation(
        method="GET",
        path=path,
        handler=handler,
        scope="read",
        tag=more.pop("tag", "live"),
        summary=summary,
        about=about,
        answers=answers,
        **more,
    )


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/snapshot",
        handler=get_snapshot,
        scope="read",
        tag="live",
        summary="Read the last snapshot of a store",
        about="Responds at once: snapshots are cached, and refreshed about every second while a client watches.",
        answers={200: ApiResponse(description="The snapshot.", type=Snapshot)},
    ),
    ApiOperation(
        method="GET",
        path="/history",
        handler=get_history,
        scope="read",
        tag="live",
        summary="Read the history of a store's numbers",
        about="The history is kept in memory: it begins with the server.",
        answers={200: ApiResponse(description="Samples, in order.", type=SampleList)},
    ),
    stream_operation(
        "/stream",
        stream_store,
        "Watch a store",
        "`event: snapshot` now, and after each read of the store.",
    ),
    stream_operation(
        "/jobs/stream",
        stream_jobs,
        "Watch a list of jobs",
        "`event: page` with the current ids and the jobs that are new or different: all of them at first. Changes "
        "between two reads, a second or more apart, are sent as one. `finished` is false when a read ended before "
        "it had seen all jobs: more may match.",
        query=ListStreamQuery,
    ),
    stream_operation(
        "/jobs/{id}/stream",
        stream_job,
        "Watch a job until it is settled",
        "`event: event` for each event of its audit trail, with its number as the id: a client that reconnects with "
        "`Last-Event-ID` gets those after it. Then `event: job` with the current job; `event: progress` when it "
        "reports progress; `event: end` once it is settled or deleted; `event: trouble` if the store does not answer.",
        query=JobStreamQuery,
        answers={204: ApiResponse(description="The client has received the end of this job.")},
        refusals=(404,),
    ),
)

__all__ = ["OPERATIONS", "stream_operation", "stream_response"]
