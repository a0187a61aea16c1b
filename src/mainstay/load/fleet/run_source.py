"""What a follower reads of a run on nodes, and the way there: the bus of the cluster, or a server of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from ...control import Control
from ...errors import InvalidInput, MainstayError, RateLimited, RequestRefused, ServerUnreachable, StoreUnavailable
from ...model import ErrorInfo
from ...stores import Wake
from ...stores.remote import manager_connection
from ...task import Sealer
from ..handler import INTERRUPTED, summary_of
from ..live_messages import RunBegin, RunLines, RunWindow
from ..stats.model import Summary, WorkflowResult
from .live_cursor import LiveUpdate
from .watched_run import WatchedRun

#: pause before a server that is away is asked for its stream again
_AGAIN_S = 1.0


class LedJob(Protocol):
    """The job of a run: a `Job`, or a `JobView` of the API."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def error(self) -> ErrorInfo | None: ...
    @property
    def settled_ms(self) -> int | None: ...
    @property
    def parent(self) -> str | None: ...


class JobChanges(Protocol):
    """Wakes its reader when the job may have changed."""

    async def wait(self, timeout_s: float) -> bool: ...


class RunSource(Protocol):
    """One run on nodes. A cluster that does not answer raises a `StoreError`."""

    id: str
    """of the job"""
    is_live: bool
    """whether windows may arrive while it runs; without them, the summary that is saved with the job is shown"""

    async def job(self) -> LedJob: ...

    async def summary(self) -> Summary | None:
        """That of the job as it was read last; None: it has no numbers yet."""
        ...

    async def cancel(self, *, by: str, reason: str = INTERRUPTED) -> LedJob:
        """Raises `InvalidTransition` if it has ended."""
        ...

    def changes(self) -> AbstractAsyncContextManager[JobChanges]: ...

    def live(self) -> AbstractAsyncContextManager[AsyncIterator[LiveUpdate]]:
        """What its leader sends, from the start of the run on, if it is live."""
        ...


class BusRunSource:
    """A run of the cluster whose store this is."""

    def __init__(self, control: Control, job_id: str) -> None:
        self._control = control
        self._connection = manager_connection(control.store)
        self.id = job_id
        self._job: Any = None
        self.is_live = self._connection is not None

    async def job(self) -> LedJob:
        self._job = await self._control.jobs.get(self.id)
        return self._job  # type: ignore[no-any-return]

    async def summary(self) -> Summary | None:
        return summary_of(self._job or await self._control.jobs.get(self.id), Sealer(None))

    async def cancel(self, *, by: str, reason: str = INTERRUPTED) -> LedJob:
        self._job = await self._control.operations.cancel(self.id, actor=by, reason=reason)
        return self._job  # type: ignore[no-any-return]

    def changes(self) -> Wake:
        return self._control.store.wake([f"job:{self.id}"])

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncIterator[AsyncIterator[LiveUpdate]]:
        if self._connection is None:
            raise InvalidInput("store", "no windows arrive without the bus of a cluster")
        async with WatchedRun(self._connection, self.id) as run:
            yield run.updates()


class HttpRunSource:
    """A run of a server. `client` is a `mainstay.AsyncClient`, which is a layer above."""

    is_live = True

    def __init__(self, client: Any, job_id: str) -> None:
        self._client = client
        self.id = job_id
        self._handle = client.handle(job_id)

    async def job(self) -> LedJob:
        job: LedJob = await _answered(self._handle.job(payload=False))
        return job

    async def summary(self) -> Summary | None:
        try:
            found: Summary = await _answered(self._client.load_summary(self._handle.id))
        except RequestRefused as error:
            if error.reason != "no_numbers_yet":
                raise
            return None
        return found

    async def cancel(self, *, by: str, reason: str = INTERRUPTED) -> LedJob:
        # the server knows who asks, by the token
        del by
        job: LedJob = await _answered(self._handle.cancel(reason))
        return job

    def changes(self) -> HttpJobChanges:
        return HttpJobChanges(self._handle)

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncIterator[AsyncIterator[LiveUpdate]]:
        async with contextlib.aclosing(self._updates()) as updates:
            yield updates

    async def _updates(self) -> AsyncGenerator[LiveUpdate, None]:
        """The stream of the run. A server that is away for long is tried again, by another stream."""
        while True:
            try:
                async for message in self._client.loads.stream(self._handle.id):
                    match message:
                        case RunBegin(header=header):
                            yield LiveUpdate(header=header)
                        case RunWindow(moment=moment):
                            yield LiveUpdate(moment=moment)
                        case WorkflowResult():
                            yield LiveUpdate(result=message)
                        case RunLines(lines=lines):
                            yield LiveUpdate(lines=tuple(lines))
                return
            except ServerUnreachable:
                await asyncio.sleep(_AGAIN_S)
            except MainstayError:
                return  # the server is of an earlier version


class HttpJobChanges:
    """Reads the stream of a job. When that breaks for good, the reader only waits as long as it wants to."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read(), name="mainstay run stream")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a change; whether there was one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def _read(self) -> None:
        with contextlib.suppress(MainstayError):
            async for _ in self._handle.stream():
                self._changed.set()


async def _answered(answer: Any) -> Any:
    """The answer of a server; one that is away is like a store that is away, and one that asks for a pause like a busy
    manager."""
    try:
        return await answer
    except ServerUnreachable as error:
        raise StoreUnavailable(str(error)) from error
    except RequestRefused as error:
        if error.retry_after_s is None:
            raise
        raise RateLimited("requests to the server", error.retry_after_s) from error


__all__ = ["BusRunSource", "HttpRunSource", "JobChanges", "LedJob", "RunSource"]
