# Generated from async_handle.py by `make generate`. Do not edit.

"""JobHandle: a submitted job, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from ..control import EventView, JobRoutes, JobView
from ..control.explain import Explanation
from ..web.live import JobMessage
from .core import Core, Duration
from .exchange import Flow
from .resumable_stream import ResumableStream, job_stream

T = TypeVar("T")

_PAGE = 500


class FlowRunner(Protocol):
    """Sends the requests of a flow."""

    def __call__(self, flow: Flow[T]) -> T: ...


class StreamReader(Protocol):
    """Reads a stream, and reopens it when it breaks."""

    def __call__(self, stream: ResumableStream[T]) -> Generator[T, None, None]: ...


class JobHandle:
    """A job by its id. Each call sends a request; the handle caches nothing."""

    __slots__ = ("_core", "_follow", "_run", "created", "durability", "id")

    def __init__(
        self,
        core: Core,
        run: FlowRunner,
        follow: StreamReader,
        job_id: str,
        *,
        created: bool = False,
        durability: str = "",
    ) -> None:
        self.id = job_id
        self.created = created
        """whether this submit created the job; False if it existed before (same key, or `unique`)"""
        self.durability = durability
        """the failures that the stored submit survives, in words; empty for a handle made by id"""
        self._core = core
        self._run = run
        self._follow = follow

    @overload
    def result(self, timeout: Duration | None = None) -> Any: ...
    @overload
    def result(self, timeout: Duration | None = None, *, returns: type[T]) -> T: ...
    def result(self, timeout: Duration | None = None, *, returns: Any = Any) -> Any:
        """Wait until the job is settled; returns the task's result, as plain data or as the type `returns`. Raises
        `JobFailed` if it settled otherwise, and `WaitTimeout` if the timeout passes first; the job continues then.
        Fields that the server masks are masked here."""
        return self._run(self._core.result(self.id, timeout, returns))

    def wait(self, timeout: Duration | None = None) -> JobView:
        """Wait until the job is settled, whatever its outcome; raises `WaitTimeout`."""
        return self._run(self._core.wait(self.id, timeout))

    def job(self, *, payload: bool = True) -> JobView:
        """Read the job as it is now; raises `JobNotFound`."""
        return self._run(self._core.job(self.id, payload=payload))

    def status(self) -> str:
        """Read its status: scheduled, pending, running, succeeded ..."""
        job = self.job(payload=False)
        return job.status

    def story(self) -> list[str]:
        """Read what happened to the job, a line per event."""
        story = self._run(self._core.story(self.id))
        return story.lines

    def explain(self) -> Explanation:
        """Explain the state of the job: why it is there, and what to do."""
        return self._run(self._core.explain(self.id))

    def routes(self) -> JobRoutes:
        """Read on which nodes its units were placed, and why they moved: slices of a load test, members of a node
        job."""
        return self._run(self._core.routes(self.id))

    def awaited(self) -> list[str]:
        """Read the ids of the jobs that it waits for, or waited for."""
        return self._run(self._core.awaited(self.id))

    def events(self, *, after: int = 0) -> Iterator[EventView]:
        """Iterate over its audit trail, page by page."""
        start: int | None = after
        while start is not None:
            page = self._run(self._core.trail(self.id, after=start, limit=_PAGE))
            yield from page.events
            start = page.next

    def units(self, *, status: str | Sequence[str] | None = None, payload: bool = False) -> Iterator[JobView]:
        """Iterate over its units, oldest first, page by page."""
        cursor: str | None = None
        while True:
            page = self._run(self._core.units(self.id, status=status, cursor=cursor, limit=_PAGE, payload=payload))
            yield from page.units
            if (cursor := page.next) is None:
                return

    def stream(self, *, payload: bool = False) -> Generator[JobMessage, None, None]:
        """Stream what happens to the job, from its first event until it is settled: events, the job after them, its
        progress, and its end. A broken stream resumes where it broke. The stream is JSON, so bytes in a payload or
        result are base64; `job()` returns them as bytes."""
        return self._follow(job_stream(self._core, self.id, payload=payload))

    def cancel(self, reason: str | None = None, *, version: int | None = None) -> JobView:
        """Cancel the job: at once if no worker holds it, else through `cancelling`. Idempotent. With a `version`, here
        and below, only if the job is still at that version; else raises `VersionChanged`."""
        return self._run(self._core.cancel(self.id, reason, version))

    def retry(self, reason: str | None = None, *, version: int | None = None) -> JobView:
        """Send the job back to its queue."""
        return self._run(self._core.retry(self.id, reason, version))

    def set_priority(self, priority: int, *, version: int | None = None) -> JobView:
        """Change its priority in its queue."""
        return self._run(self._core.set_priority(self.id, priority, version))

    def force(self, to: str, *, reason: str, version: int | None = None) -> JobView:
        """Move the job past the transition table; the event is marked as forced."""
        return self._run(self._core.force(self.id, to, reason, version))

    def delete(self, reason: str | None = None, *, version: int | None = None) -> None:
        """Delete the job, if no worker holds it."""
        self._run(self._core.delete(self.id, reason, version))

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}{', created=True' if self.created else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class JobGroup(NamedTuple):
    """A submitted group. `then` is the job that runs once, when the members are done."""

    members: tuple[JobHandle, ...]
    """in the order given; of a group that existed before, the jobs that `then` waits or waited for"""
    then: JobHandle


__all__ = ["FlowRunner", "JobGroup", "JobHandle", "StreamReader"]
