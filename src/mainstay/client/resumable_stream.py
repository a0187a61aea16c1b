"""A live stream that is opened again when it breaks, where it broke. No I/O: the clients open and read."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from ..control.json_view import EventView, JobView
from ..errors import MainstayError, ServerUnreachable
from ..load.clients import events
from ..web.live.messages import EndMessage, JobMessage, ListMessage, ProgressMessage, TroubleMessage
from ..web.live.snapshot import Snapshot
from .calls import ApiAnswer, read_as, with_query
from .core import Core, JobFilters, job_path
from .exchange import Lost, retry_after
from .refusals import error_of

T = TypeVar("T")

_MESSAGES: dict[str, Any] = {
    "event": EventView,
    "job": JobView,
    "progress": ProgressMessage,
    "end": EndMessage,
    "trouble": TroubleMessage,
}
_NO_MORE = 204
_AGAIN = (429, 502, 503, 504)


class ResumableStream(Generic[T]):
    """One stream: what was seen last, and what to do when it breaks."""

    def __init__(self, core: Core, path: str, read: Callable[[events.ServerSentEvent], T | None]) -> None:
        self.path = path
        self.over = False
        """nothing more will come"""
        self._core = core
        self._read = read
        self._last = ""
        self._losses = 0
        self._wanted_s: float | None = None
        self._begin()

    @property
    def headers(self) -> dict[str, str]:
        """To be sent with the next request."""
        seen = {"Last-Event-ID": self._last} if self._last else {}
        return {"Accept": "text/event-stream", "Cache-Control": "no-store", **seen}

    def feed(self, chunk: bytes) -> Iterator[T]:
        """What a piece of the stream tells."""
        for event in self._parser.feed(self._decoder.decode(chunk)):
            self._losses, self._last = 0, event.id or self._last
            self._wanted_s = self._wanted_s if event.retry is None else event.retry / 1000
            found = self._read(event)
            if found is not None:
                self.over = self.over or isinstance(found, EndMessage)
                yield found

    def begun(self, answer: ApiAnswer) -> float | None:
        """What the server said before the stream: None to read it, or how long to wait before the next try. Raises when
        it was refused."""
        if answer.status == _NO_MORE:
            self.over = True
        if answer.status < 300:
            return None
        error = error_of(answer, self)
        if answer.status not in _AGAIN:
            raise error
        return self._next(error, retry_after(answer))

    def lost(self, lost: Lost | None = None) -> float:
        """It broke, or ended; how long to wait before it is opened again. Raises after too many losses in a row."""
        why = str(lost or "the server ended the stream")
        return self._next(ServerUnreachable(f"the stream {self.path.partition('?')[0]} broke: {why}"), self._wanted_s)

    def _next(self, error: MainstayError, asked_s: float | None) -> float:
        self._begin()
        self._losses += 1
        pause_s = self._core.pause(self._losses, asked_s)
        if pause_s is None:
            raise error
        return pause_s

    def _begin(self) -> None:
        self._parser = events.EventParser()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")


def job_stream(core: Core, job_id: str, *, payload: bool) -> ResumableStream[JobMessage]:
    """All that happens to a job, from its first event on."""

    def read(event: events.ServerSentEvent) -> JobMessage | None:
        kind = _MESSAGES.get(event.event)
        found: JobMessage | None = None if kind is None else read_as(event.data, kind)
        return found

    return ResumableStream(core, with_query(job_path(job_id, "stream"), core.query(payload=payload)), read)


def store_stream(core: Core) -> ResumableStream[Snapshot]:
    """A store at a glance, again and again."""
    return ResumableStream(core, with_query("/stream", core.query()), _reading("snapshot", Snapshot))


def list_stream(core: Core, filters: JobFilters, *, limit: int, oldest_first: bool) -> ResumableStream[ListMessage]:
    """A list of jobs, and what changes in it."""
    query = core.query(**core.listed(filters), limit=limit, oldest_first=oldest_first)
    return ResumableStream(core, with_query("/jobs/stream", query), _reading("page", ListMessage))


def _reading(name: str, into: type[T]) -> Callable[[events.ServerSentEvent], T | None]:
    def read(event: events.ServerSentEvent) -> T | None:
        return read_as(event.data, into) if event.event == name else None

    return read


__all__ = ["ResumableStream", "job_stream", "list_stream", "store_stream"]
