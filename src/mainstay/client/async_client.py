"""AsyncClient: the API for programs with an event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from ..clock import seconds
from ..control import SessionView, StatsView
from ..load import Summary
from ..task import SubmitOptions
from ..web.api import QuickCheckResult, StoreInfo, SubmitResponse, WorkingSession
from ..web.live import Sample, Snapshot
from .async_handle import AsyncJobGroup, AsyncJobHandle
from .async_resources import (
    AsyncBatchesResource,
    AsyncJobsResource,
    AsyncLoadsResource,
    AsyncNodesResource,
    AsyncQueuesResource,
    AsyncSchedulesResource,
)
from .calls import ApiCall
from .core import Core
from .core_loads import LoadCore
from .core_store import BatchCore, NodeCore, QueueCore, ScheduleCore, StoreCore
from .exchange import Blocking, Flow, Lost, RetryPause, Tries
from .resumable_stream import ResumableStream, store_stream
from .submit_request import SubmitRequest, submit_request
from .transport import BROKEN, Verify, answer_of, check_open, httpx, lost, server_address

T = TypeVar("T")


class AsyncClient:
    """A server of Mainstay (`mainstay serve`), from a program with an event loop.

    Without a URL, MAINSTAY_URL names the server and MAINSTAY_TOKEN holds the token. `store` selects one of the server's
    stores. A request that is safe to repeat is sent again when the server is away or asks for a pause; every submit has
    a key, so a job is never stored twice. Errors are those of the library.

    >>> client = AsyncClient("https://jobs.example.com", token="secret")
    >>> client
    <AsyncClient of https://jobs.example.com>
    >>> asyncio.run(client.close())
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        store: str | None = None,
        timeout: str | timedelta = "30s",
        tries: Tries | None = None,
        verify: Verify = True,
        insecure: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._wire = server_address(url, token=token, insecure=insecure, timeout_s=seconds(timeout, field="timeout"))
        self._http = httpx.AsyncClient(headers=self._wire.headers, verify=verify, transport=transport)
        self._core = core = Core(store=store, tries=tries or Tries(), rng=rng or random.SystemRandom())
        self._store = StoreCore(core)
        self._load = LoadCore(core)
        self.jobs = AsyncJobsResource(core, self.run, self.follow)
        """find jobs, and act on many of them"""
        self.queues = AsyncQueuesResource(QueueCore(core), self.run)
        self.schedules = AsyncSchedulesResource(ScheduleCore(core), self.run, self.handle)
        self.batches = AsyncBatchesResource(BatchCore(core), self.run)
        self.loads = AsyncLoadsResource(self._load, self.run, self.follow, self._made)
        self.nodes = AsyncNodesResource(NodeCore(core), self.run)

    # submit -----------------------------------------------------------------------------------------

    async def submit(self, name: str, payload: Any = None, **options: Unpack[SubmitOptions]) -> AsyncJobHandle:
        """Submit one job of the task `name`; `payload` holds its arguments by name. Options are those of the library.
        Returns when the job is stored."""
        made = await self.run(self._core.submit(submit_request(name, payload, options)))
        return self._made(made)

    def job(self, name: str, payload: Any = None, **options: Unpack[SubmitOptions]) -> SubmitRequest:
        """A job for `submit_many` and `group`."""
        return submit_request(name, payload, options)

    async def submit_many(
        self, jobs: Iterable[SubmitRequest], *, chunk: int = 1000, progress: Callable[[int], object] | None = None
    ) -> list[AsyncJobHandle]:
        """Submit many jobs (`client.job(...)`). Each chunk is stored whole or not at all; after each chunk `progress`
        is called with the number of jobs stored so far. An error names the job by its position in `jobs`, and its notes
        give the number of stored jobs."""
        made = await self.run(self._core.submit_many(jobs, chunk=chunk, progress=progress))
        return [self._made(each) for each in made]

    async def group(
        self,
        members: Iterable[SubmitRequest],
        *,
        then: SubmitRequest,
        when: Literal["succeeded", "settled"] = "succeeded",
        failed: Literal["skip", "fail"] = "skip",
    ) -> AsyncJobGroup:
        """Submit many jobs, and one that runs once when all of them have succeeded (or are settled). All or none are
        stored. If a member fails, `then` is skipped, or fails with `failed="fail"`."""
        made = await self.run(self._core.submit_group(members, then, when=when, failed=failed))
        return AsyncJobGroup(tuple(map(self._made, made.members)), self._made(made.then))

    def handle(self, job_id: str) -> AsyncJobHandle:
        """A handle of any job, by id; it sends no request."""
        return AsyncJobHandle(self._core, self.run, self.follow, job_id)

    # look -------------------------------------------------------------------------------------------

    async def stores(self) -> list[StoreInfo]:
        """List the stores of the server."""
        return await self.run(self._store.stores())

    async def stats(self) -> StatsView:
        """Read the counts, rates and ages of the store."""
        return await self.run(self._store.stats())

    async def workers(self) -> list[WorkingSession]:
        """List the worker sessions and the jobs that they hold."""
        return await self.run(self._store.workers())

    async def drain_worker(self, worker: str) -> list[SessionView]:
        """Drain a worker, given by its name or by the id of one of its sessions: it claims no more jobs, finishes what
        it runs within its grace period, and exits. Returns the sessions that received the request; raises
        `WorkerNotFound`."""
        return await self.run(self._store.drain(worker))

    async def snapshot(self) -> Snapshot:
        """Read the server's latest snapshot of the store; costs the store nothing."""
        return await self.run(self._store.snapshot())

    async def history(self) -> list[Sample]:
        """Read the history of the store's numbers: the last ten minutes in detail, the last day coarsely."""
        return await self.run(self._store.history())

    async def check(self) -> QuickCheckResult:
        """Check some jobs against every invariant; the next call continues from there."""
        return await self.run(self._store.check())

    async def load_summary(self, job_id: str) -> Summary:
        """Read the summary of a load test: the final one, or the latest if it still runs."""
        return await self.run(self._load.summary(job_id))

    def stream(self) -> AsyncGenerator[Snapshot, None]:
        """Stream snapshots of the store, the first now and another at each change. Does not end by itself."""
        return self.follow(store_stream(self._core))

    # open and close ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._wire.shown}>"

    # drive ------------------------------------------------------------------------------------------

    async def run(self, flow: Flow[T]) -> T:
        """Send the requests of a flow; returns its result."""
        check_open(self._http)
        try:
            step = next(flow)
            while True:
                if isinstance(step, RetryPause):
                    await asyncio.sleep(step.seconds)
                    step = next(flow)
                    continue
                if isinstance(step, Blocking):
                    answer = await asyncio.to_thread(step.call)
                    step = flow.send(answer)
                    continue
                try:
                    answer = await self._send(step)
                except Lost as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    async def follow(self, stream: ResumableStream[T]) -> AsyncGenerator[T, None]:
        """Read a stream; reopen it when it breaks."""
        while not stream.over:
            check_open(self._http)
            pause_s: float | None = None
            try:
                async with self._http.stream(**self._wire.streaming(stream.path, stream.headers)) as response:
                    body = b"" if response.is_success else await response.aread()
                    pause_s = stream.begun(answer_of(response, body))
                    if pause_s is None:
                        async for chunk in response.aiter_bytes():
                            for each in stream.feed(chunk):
                                yield each
            except BROKEN as error:
                pause_s = stream.lost(lost(error))
            if not stream.over:
                await asyncio.sleep(stream.lost() if pause_s is None else pause_s)

    async def _send(self, call: ApiCall[Any]) -> Any:
        try:
            response = await self._http.request(**self._wire.request(call))
        except BROKEN as error:
            raise lost(error) from error
        return answer_of(response, response.content)

    def _made(self, made: SubmitResponse) -> AsyncJobHandle:
        return AsyncJobHandle(
            self._core, self.run, self.follow, made.id, created=made.created, durability=made.durability
        )


__all__ = ["AsyncClient"]
