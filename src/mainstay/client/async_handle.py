"""AsyncJobHandle: a submitted job, for programs with an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from ..control import EventView, JobRoutes, JobView
from ..control.explain import Explanation
from ..web.live import JobMessage
from .core import Core, Duration
from .exchange import Flow
from .resumable_stream import ResumableStream, job_stream

T = TypeVar("T")

_PAGE = 500


class AsyncFlowRunner(Protocol):
    """Sends the requests of a flow."""

    async def __call__(self, flow: Flow[T]) -> T: ...


class AsyncStreamReader(Protocol):
    """Reads a stream, and reopens it when it breaks."""

    def __call__(self, stream: ResumableStream[T]) -> AsyncGenerator[T, None]: ...


class AsyncJobHandle:
    """A job by its id. Each call sends a request; the handle caches nothing."""

    __slots__ = ("_core", "_follow", "_run", "created", "durability", "id")

    def __init__(
        self,
        core: Core,
        run: AsyncFlowRunner,
        follow: AsyncStreamReader,
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
    async def result(self, timeout: Duration | None = None) -> Any: ...  # noqa: ASYNC109
    @overload
    async def result(self, timeout: Duration | None = None, *, returns: type[T]) -> T: ...  # noqa: ASYNC109
    async def result(self, timeout: Duration | None = None, *, returns: Any = Any) -> Any:  # noqa: ASYNC109 - the name that users expect
        """Wait until the job is settled; returns the task's result, as plain data or as the type `returns`. Raises
        `JobFailed` if it settled otherwise, and `WaitTimeout` if the timeout passes first; the job continues then.
        Fields that the server masks are masked here."""
        return await self._run(self._core.result(self.id, timeout, returns))

    async def wait(self, timeout: Duration | None = None) -> JobView:  # noqa: ASYNC109 - the name that users expect
        """Wait until the job is settled, whatever its outcome; raises `WaitTimeout`."""
        return await self._run(self._core.wait(self.id, timeout))

    async def job(self, *, payload: bool = True) -> JobView:
        """Read the job as it is now; raises `JobNotFound`."""
        return await self._run(self._core.job(self.id, payload=payload))

    async def status(self) -> str:
        """Read its status: scheduled, pending, running, succeeded ..."""
        job = await self.job(payload=False)
        return job.status

    async def story(self) -> list[str]:
        """Read what happened to the job, a line per event."""
        story = await self._run(self._core.story(self.id))
        return story.lines

    async def explain(self) -> Explanation:
        """Explain the state of the job: why it is there, and what to do."""
        return await self._run(self._core.explain(self.id))

    async def routes(self) -> JobRoutes:
        """Read on which nodes its units were placed, and why they moved: slices of a load test, members of a node
        job."""
        return await self._run(self._core.routes(self.id))

    async def awaited(self) -> list[str]:
        """Read the ids of the jobs that it waits for, or waited for."""
        return await self._run(self._core.awaited(self.id))

    async def events(self, *, after: int = 0) -> AsyncIterator[EventView]:
        """Iterate over its audit trail, page by page."""
        start: int | None = after
        while start is not None:
            page = await self._run(self._core.trail(self.id, after=start, limit=_PAGE))
            for event in page.events:
                yield event
            start = page.next

    async def units(
        self, *, status: str | Sequence[str] | None = None, payload: bool = False
    ) -> AsyncIterator[JobView]:
        """Iterate over its units, oldest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self._run(
                self._core.units(self.id, status=status, cursor=cursor, limit=_PAGE, payload=payload)
            )
            for unit in page.units:
                yield unit
            if (cursor := page.next) is None:
                return

    def stream(self, *, payload: bool = False) -> AsyncGenerator[JobMessage, None]:
        """Stream what happens to the job, from its first event until it is settled: events, the job after them, its
        progress, and its end. A broken stream resumes where it broke. The stream is JSON, so bytes in a payload or
        result are base64; `job()` returns them as bytes."""
        return self._follow(job_stream(self._core, self.id, payload=payload))

    async def cancel(self, reason: str | None = None, *, version: int | None = None) -> JobView:
        """Cancel the job: at once if no worker holds it, else through `cancelling`. Idempotent. With a `version`, here
        and below, only if the job is still at that version; else raises `VersionChanged`."""
        return await self._run(self._core.cancel(self.id, reason, version))

    async def retry(self, reason: str | None = None, *, version: int | None = None) -> JobView:
        """Send the job back to its queue."""
        return await self._run(self._core.retry(self.id, reason, version))

    async def set_priority(self, priority: int, *, version: int | None = None) -> JobView:
        """Change its priority in its queue."""
        return await self._run(self._core.set_priority(self.id, priority, version))

    async def force(self, to: str, *, reason: str, version: int | None = None) -> JobView:
        """Move the job past the transition table; the event is marked as forced."""
        return await self._run(self._core.force(self.id, to, reason, version))

    async def delete(self, reason: str | None = None, *, version: int | None = None) -> None:
        """Delete the job, if no worker holds it."""
        await self._run(self._core.delete(self.id, reason, version))

    def __repr__(self) -> str:
        return f"AsyncJobHandle({self.id!r}{', created=True' if self.created else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncJobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class AsyncJobGroup(NamedTuple):
    """A submitted group. `then` is the job that runs once, when the members are done."""

    members: tuple[AsyncJobHandle, ...]
    """in the order given; of a group that existed before, the jobs that `then` waits or waited for"""
    then: AsyncJobHandle


__all__ = ["AsyncFlowRunner", "AsyncJobGroup", "AsyncJobHandle", "AsyncStreamReader"]
