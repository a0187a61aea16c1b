"""A submitted job, in the hand of a program with an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from ...control.explain import Explanation
from .answers import Event, Job, News
from .core import Core, Duration
from .exchange import Flow
from .following import Following, job_stream

T = TypeVar("T")

_PAGE = 500


class Run(Protocol):
    """Does what a flow says."""

    async def __call__(self, flow: Flow[T]) -> T: ...


class Follow(Protocol):
    """Reads a stream."""

    def __call__(self, following: Following[T]) -> AsyncGenerator[T, None]: ...


class AsyncHandle:
    """A job by its id. Everything is asked of the server when it is wanted; nothing is kept here."""

    __slots__ = ("_core", "_follow", "_run", "created", "durability", "id")

    def __init__(
        self, core: Core, run: Run, follow: Follow, job_id: str, *, created: bool = False, durability: str = ""
    ) -> None:
        self.id = job_id
        self.created = created
        """whether this submit made it; False when it was there before (its key, or `unique`)"""
        self.durability = durability
        """what the answer of the submit survives, in words; empty for a handle that was made by id"""
        self._core = core
        self._run = run
        self._follow = follow

    @overload
    async def result(self, timeout: Duration | None = None) -> Any: ...  # noqa: ASYNC109
    @overload
    async def result(self, timeout: Duration | None = None, *, returns: type[T]) -> T: ...  # noqa: ASYNC109
    async def result(self, timeout: Duration | None = None, *, returns: Any = Any) -> Any:  # noqa: ASYNC109 - how users say it
        """Wait for the end and give what the task returned, as plain data or as the type that it `returns`. Raises
        `JobFailed` when it settled otherwise, and `WaitTimeout` when the wait is over first; the job goes on then.
        Fields that the server masks are masked here."""
        return await self._run(self._core.result(self.id, timeout, returns))

    async def wait(self, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109 - how users say it
        """The job once it is settled, however it settled; raises `WaitTimeout`."""
        return await self._run(self._core.wait(self.id, timeout))

    async def job(self, *, payload: bool = True) -> Job:
        """The job as it is now; raises `JobNotFound`."""
        return await self._run(self._core.job(self.id, payload=payload))

    async def status(self) -> str:
        """Its state now: scheduled, pending, running, succeeded ..."""
        return (await self.job(payload=False)).status

    async def story(self) -> list[str]:
        """What happened to it, a line each."""
        return (await self._run(self._core.story(self.id))).lines

    async def explain(self) -> Explanation:
        """Where it is and why, and what to do."""
        return await self._run(self._core.explain(self.id))

    async def awaited(self) -> list[str]:
        """The ids of the jobs that it waits for, or waited for."""
        return await self._run(self._core.awaited(self.id))

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Its audit trail, page by page."""
        start: int | None = after
        while start is not None:
            page = await self._run(self._core.trail(self.id, after=start, limit=_PAGE))
            for event in page.events:
                yield event
            start = page.next

    async def units(self, *, status: str | Sequence[str] | None = None, payload: bool = False) -> AsyncIterator[Job]:
        """Its units, oldest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self._run(
                self._core.units(self.id, status=status, cursor=cursor, limit=_PAGE, payload=payload)
            )
            for unit in page.units:
                yield unit
            if (cursor := page.next) is None:
                return

    def stream(self, *, payload: bool = False) -> AsyncGenerator[News, None]:
        """All that happens to it, from its first event on, until it is settled: events, the job as it stands after
        them, its progress, and its end. A broken stream is taken up where it broke. What it tells is JSON: bytes in a
        payload or result are base64 there; `job()` has them as they are."""
        return self._follow(job_stream(self._core, self.id, payload=payload))

    async def cancel(self, reason: str | None = None, *, version: int | None = None) -> Job:
        """Cancel it: at once if nobody works on it, else through `cancelling`. Twice is once. With a `version`, here
        and below, only as long as the job is at that one; else `VersionChanged` is raised."""
        return await self._run(self._core.cancel(self.id, reason, version))

    async def retry(self, reason: str | None = None, *, version: int | None = None) -> Job:
        """Send it back to its queue."""
        return await self._run(self._core.retry(self.id, reason, version))

    async def set_priority(self, priority: int, *, version: int | None = None) -> Job:
        """Change its place in its queue."""
        return await self._run(self._core.set_priority(self.id, priority, version))

    async def force(self, to: str, *, reason: str, version: int | None = None) -> Job:
        """Move it against the table, audited as forced."""
        return await self._run(self._core.force(self.id, to, reason, version))

    async def delete(self, reason: str | None = None, *, version: int | None = None) -> None:
        """Delete it, if nobody works on it."""
        await self._run(self._core.delete(self.id, reason, version))

    def __repr__(self) -> str:
        return f"AsyncHandle({self.id!r}{', created=True' if self.created else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class AsyncGroup(NamedTuple):
    """A submitted group. `then` is the job that runs once, when the members are done."""

    members: tuple[AsyncHandle, ...]
    """in the order given; of a group that was submitted before, those that `then` waits or waited for"""
    then: AsyncHandle


__all__ = ["AsyncGroup", "AsyncHandle", "Follow", "Run"]
