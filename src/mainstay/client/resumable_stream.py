"""Live streams that resume after a break, without I/O: the clients open and read."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from ..control import EventView, JobView
from ..errors import MainstayError, ServerUnreachable
from ..event_stream import EventParser, ServerSentEvent
from ..load import Summary
from ..load.live_messages import RunBegin, RunLines, RunMessage, RunWindow, WorkflowResult
from ..model import check_id
from ..web.live import EndMessage, JobMessage, ListMessage, ProgressMessage, Snapshot, TroubleMessage
from .calls import ApiAnswer, read_as, with_query
from .core import Core, JobFilters, job_path
from .exchange import Lost
from .refusals import error_of, retry_after

T = TypeVar("T")

_MESSAGES: dict[str, Any] = {
    "event": EventView,
    "job": JobView,
    "progress": ProgressMessage,
    "end": EndMessage,
    "trouble": TroubleMessage,
}
_RUN_MESSAGES: dict[str, Any] = {
    "status": JobView,
    "run": RunBegin,
    "window": RunWindow,
    "workflow": WorkflowResult,
    "lines": RunLines,
    "summary": Summary,
    "end": EndMessage,
    "trouble": TroubleMessage,
}
_NO_MORE = 204
_AGAIN = (429, 502, 503, 504)


class ResumableStream(Generic[T]):
    """One stream: its last event, and what to do when it breaks."""

    def __init__(self, core: Core, path: str, read: Callable[[ServerSentEvent], T | None]) -> None:
        self.path = path
        self.over = False
        """the stream has ended"""
        self._core = core
        self._read = read
        self._last = ""
        self._losses = 0
        self._server_pause_s: float | None = None
        self._begin()

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the next request."""
        last_event = {"Last-Event-ID": self._last} if self._last else {}
        return {"Accept": "text/event-stream", "Cache-Control": "no-store", **last_event}

    def feed(self, chunk: bytes) -> Iterator[T]:
        """The messages of the next bytes of the stream."""
        for event in self._parser.feed(self._decoder.decode(chunk)):
            self._losses, self._last = 0, event.id or self._last
            self._server_pause_s = self._server_pause_s if event.retry is None else event.retry / 1000
            message = self._read(event)
            if message is not None:
                self.over = self.over or isinstance(message, EndMessage)
                yield message

    def begun(self, answer: ApiAnswer) -> float | None:
        """Take the response: None to read the stream, or the pause before the next attempt. Raises if the request was
        refused."""
        if answer.status == _NO_MORE:
            self.over = True
        if answer.status < 300:
            return None
        error = error_of(answer, self)
        if answer.status not in _AGAIN:
            raise error
        return self._next(error, retry_after(answer))

    def lost(self, lost: Lost | None = None) -> float:
        """The pause after the stream broke or ended. Raises after too many losses in a row."""
        cause = str(lost or "the server ended the stream")
        return self._next(
            ServerUnreachable(f"the stream {self.path.partition('?')[0]} broke: {cause}"), self._server_pause_s
        )

    def _next(self, error: MainstayError, asked_s: float | None) -> float:
        self._begin()
        self._losses += 1
        pause_s = self._core.pause(self._losses, asked_s)
        if pause_s is None:
            raise error
        return pause_s

    def _begin(self) -> None:
        self._parser = EventParser()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")


def job_stream(core: Core, job_id: str, *, payload: bool) -> ResumableStream[JobMessage]:
    """The messages about a job, from its first event on."""

    def read(event: ServerSentEvent) -> JobMessage | None:
        kind = _MESSAGES.get(event.event)
        message: JobMessage | None = None if kind is None else read_as(event.data, kind)
        return message

    return ResumableStream(core, with_query(job_path(job_id, "stream"), core.query(payload=payload)), read)


def store_stream(core: Core) -> ResumableStream[Snapshot]:
    """Snapshots of a store."""
    return ResumableStream(core, with_query("/stream", core.query()), _reading("snapshot", Snapshot))


def list_stream(core: Core, filters: JobFilters, *, limit: int, oldest_first: bool) -> ResumableStream[ListMessage]:
    """A list of jobs, and its changes."""
    query = core.query(**core.listed(filters), limit=limit, oldest_first=oldest_first)
    return ResumableStream(core, with_query("/jobs/stream", query), _reading("page", ListMessage))


def run_stream(core: Core, job_id: str, *, detail: bool) -> ResumableStream[RunMessage]:
    """The messages about a load test."""

    def read(event: ServerSentEvent) -> RunMessage | None:
        kind = _RUN_MESSAGES.get(event.event)
        message: RunMessage | None = None if kind is None else read_as(event.data, kind)
        return message

    check_id(job_id, field="id")
    return ResumableStream(core, with_query(f"/loads/{job_id}/stream", core.query(detail=detail)), read)


def _reading(name: str, into: type[T]) -> Callable[[ServerSentEvent], T | None]:
    def read(event: ServerSentEvent) -> T | None:
        return read_as(event.data, into) if event.event == name else None

    return read


__all__ = ["ResumableStream", "job_stream", "list_stream", "run_stream", "store_stream"]
