"""The live stream of a load test.

A client that reconnects, to this server or to another one of the cluster, sends the id of the last message that it
received. It gets the windows after it, each once. Windows are numbered by the manager that leads the run, so the
numbers mean the same to every server.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...control import is_over
from ...errors import InvalidInput
from ...model import Job
from ...token_bucket import TokenBuckets
from ...web.api import ApiRequest, ApiResponse, etag_of, masked_job
from ...web.live import EndMessage, TroubleMessage, event, event_of, stream_operation, stream_response
from ..extra import extra_needed
from ..kind import KIND
from ..live_messages import RunBegin, RunLines

if TYPE_CHECKING:
    from ..fleet.live_cursor import LiveMark, LiveUpdate
    from ..fleet.live_history import LiveHistory
    from .live_runs import LiveRun, LiveRuns

#: windows a second for one client, and how many it may get at once; the others come as one
_WINDOWS_PER_S, _BURST = 20.0, 5
#: windows of a second, which come as one without detail: a percentile of less says little
_SECOND = 10
#: the end waits so long for the last windows
_COMPLETE_S = 5.0


class RunStreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of a load test is sent."""

    detail: Annotated[
        bool,
        Meta(description="Windows with steps and histograms. Without them, windows have a second, and its numbers."),
    ] = True


class WindowLimiter:
    """The rate of windows for one client.

    >>> limiter = WindowLimiter(lambda: 7.0)
    >>> limiter.allows(3), limiter.allows(3), limiter.allows(1)
    (3, 1, 0)
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._buckets = TokenBuckets(_WINDOWS_PER_S, burst=_BURST)
        self.wait_s = 0.0
        """until one more may be sent"""

    def allows(self, windows: int) -> int:
        """In how many messages this number of windows may be sent now: one for each, one for all, or 0: wait."""
        allowed, self.wait_s = 0, 0.0
        while allowed < windows and not self.wait_s:
            self.wait_s = self._buckets.take("", self._now_s())
            allowed += not self.wait_s
        return windows if allowed == windows else min(1, allowed)


async def stream_load(ask: ApiRequest[RunStreamQuery, None]) -> Response:
    with extra_needed("the stream of a load test"):
        from ..fleet.live_cursor import LiveMark  # noqa: PLC0415 - an extra that most servers do without
        from .live_runs import live_runs  # noqa: PLC0415 - the same

    site, served = ask.site, ask.served
    job = await served.control.jobs.get(ask.path("id"))
    if job.kind != KIND.name:
        raise InvalidInput("job", f"{job.id} ({job.name}) is a {job.kind} job, not a load test")
    given = ask.request.headers.get("last-event-id", "").strip()
    mark = LiveMark.read(given) if given else None
    if mark is not None and mark.ended == job.version and is_over(job):
        # this tells a browser not to reconnect
        return Response(status_code=204)
    cluster = site.cluster if served is site.stores.first else None
    runs = live_runs(served, site.hub, site.masker, None if cluster is None else cluster.connection)
    return stream_response(ask, _RunStream(ask, runs, job, mark).messages())


class _RunStream:
    """The messages about one load test for one client."""

    def __init__(self, ask: ApiRequest[RunStreamQuery, None], runs: LiveRuns, job: Job, mark: LiveMark | None) -> None:
        from ..fleet.live_cursor import LiveCursor  # noqa: PLC0415 - an extra, which is there

        self._jobs = ask.site.hub.jobs(ask.served.name)
        self._masker = ask.site.masker
        self._runs = runs
        self._detail = ask.query.detail
        self._at_a_time = 1 if self._detail else _SECOND
        self._job_id = job.id
        self._version = job.version
        self._cursor = LiveCursor(mark)
        self._limiter = WindowLimiter(asyncio.get_running_loop().time)
        self._is_limited = False
        self._line: int | None = None
        self._shown = ""
        self._summary = b""

    async def messages(self) -> AsyncGenerator[bytes, None]:
        async with self._jobs.follow(self._job_id) as followed, self._runs.follow(self._job_id) as run:
            trouble = ""
            while True:
                changes, row = (followed.changed, run.changed), followed.row
                if row is not None and row.version < self._version:
                    row = None  # it was read for others, before the job was retried
                    over = False
                else:
                    over = followed.was_read and (row is None or is_over(row))
                error = followed.error or run.error
                if error and error != trouble:
                    yield event("trouble", TroubleMessage(detail=error))
                trouble = error
                if row is not None and etag_of(row) != self._shown:
                    self._shown = etag_of(row)
                    yield event("status", masked_job(row, self._masker, payload=False))
                if over and row is not None:
                    await self._last(run, row)
                for message in self._news(run, at_once=over):
                    yield message
                if over:
                    yield self._end(row)
                    return
                if changes == (followed.changed, run.changed):
                    await _first(changes, self._wait_s())

    async def _last(self, run: LiveRun, row: Job) -> None:
        """Wait for the last windows or numbers, which are read by another task than the end of the job."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COMPLETE_S):
                while run.watched is None and run.version < row.version and not run.error:
                    await run.changed.wait()
                if run.watched is not None:
                    await run.watched.complete()

    def _wait_s(self) -> float | None:
        """In how long there may be something to send without a change."""
        return self._limiter.wait_s if self._is_limited else None

    def _news(self, run: LiveRun, *, at_once: bool) -> Iterator[bytes]:
        watched, texts = run.watched, run.texts
        if texts is None:
            return
        if run.summary != self._summary:
            self._summary = run.summary
            yield event_of("summary", run.summary)
        if watched is None:
            return
        if self._line is None:
            self._line = watched.line  # what was printed before is not kept for others
        elif lines := watched.lines_after(self._line):
            self._line = watched.line
            yield event("lines", RunLines(lines=texts.lines(lines)))
        history = watched.history
        if history is None:
            return
        cursor, self._is_limited, as_one = self._cursor, False, False
        has_caught_up = cursor.caught_up(history)
        pending = cursor.pending(history)
        if pending is not None and not cursor.lacks_results(history):
            if len(pending) < self._at_a_time and not (at_once and pending):
                return
            messages = math.ceil(len(pending) / self._at_a_time)
            allowed = self._limiter.allows(messages) if has_caught_up else messages
            self._is_limited = not allowed and not at_once
            if self._is_limited:
                return
            as_one = allowed < messages
        for update in self._cursor.updates(history, as_one=as_one, at_a_time=self._at_a_time):
            yield from self._message(run, history, update)

    def _message(self, run: LiveRun, history: LiveHistory, update: LiveUpdate) -> Iterator[bytes]:
        texts, mark = run.texts, self._cursor.mark
        assert texts is not None
        assert mark is not None
        if update.header is not None:
            yield event("run", RunBegin(header=texts.header(update.header)))
        if update.entry is not None:
            data = run.encoded(history.epoch, update.entry, detail=self._detail)
            yield event_of("window", data, mark.text)
        if update.result is not None:
            yield event("workflow", texts.result(update.result), mark.text)

    def _end(self, row: Job | None) -> bytes:
        from ..fleet.live_cursor import LiveMark  # noqa: PLC0415 - an extra, which is there

        if row is None:
            return event("end", EndMessage(id=self._job_id, status=None, deleted=True))
        mark = (self._cursor.mark or LiveMark())._replace(ended=row.version)
        return event("end", EndMessage(id=row.id, status=row.status, reason=row.reason), mark.text)


async def _first(changes: tuple[asyncio.Event, ...], timeout_s: float | None) -> None:
    """Wait until one of them is set."""
    waiting = [asyncio.ensure_future(each.wait()) for each in changes]
    try:
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


OPERATIONS = (
    stream_operation(
        "/loads/{id}/stream",
        stream_load,
        "Watch a load test until it has ended",
        "`event: status` with the job, now and after each change. `event: run` when the client begins to count: at "
        "first, after another manager has taken over the run, and after a long break; it gets all windows from the "
        "start of the run then, the last minute whole and an hour in sums of ten seconds. `event: window` ten times a "
        "second: a client that is slow gets what it has missed as one window. `event: workflow` once for each workflow "
        "that has ended; `event: lines` with what steps print; `event: end` once. A client that reconnects, to any "
        "server of the cluster, with `Last-Event-ID` gets what follows. A run on one machine, or on a server without "
        "its cluster, has no windows: `event: summary` has the numbers that are saved with the job, every two seconds, "
        "without its curves. `event: trouble` if the store or the cluster does not answer.",
        tag="load tests",
        query=RunStreamQuery,
        answers={204: ApiResponse(description="The client has received the end of this run.")},
        refusals=(404,),
    ),
)

__all__ = ["OPERATIONS", "RunStreamQuery", "WindowLimiter"]
