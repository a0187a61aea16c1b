"""AsyncClient: the API for programs with an event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from ...clock import seconds
from ...load.stats.model import Summary
from ...task.options import SubmitOptions
from ..api.seen import Checked, StoreSeen
from ..api.shapes import Submitted
from ..live.history import Sample
from ..live.snapshot import Snapshot
from .aio_handle import AsyncGroup, AsyncHandle
from .aio_parts import AsyncBatches, AsyncJobs, AsyncQueues, AsyncSchedules
from .answers import Session, Stats, Working
from .calls import Call
from .core import Core
from .core_store import BatchCore, QueueCore, ScheduleCore, StoreCore
from .exchange import Flow, Lost, Pause, Tries
from .following import Following, store_stream
from .new import NewJob, new_job
from .wire import BROKEN, Verify, answer_of, check_open, httpx, lost, wire_to

T = TypeVar("T")


class AsyncClient:
    """A server of Mainstay (`mainstay serve`), from a program with an event loop.

    Without a URL, MAINSTAY_URL names the server, and MAINSTAY_TOKEN who asks. `store` is which of the server's stores
    is meant, if it has several. What can be sent twice without harm is tried again when the server is away or asks for
    a pause; every submit has a key, so it is never stored twice. Errors are those of the library.

    >>> from mainstay.web.options import WebOptions
    >>> from mainstay.web.shelf import Shelf
    >>> from mainstay.web.site import make_site
    >>> async def main():
    ...     async with await Shelf.open({"main": "memory:"}) as shelf:
    ...         here = httpx.ASGITransport(make_site(shelf, WebOptions(), tokens=None))
    ...         async with AsyncClient("http://127.0.0.1:8330", transport=here) as client:
    ...             job = await client.submit("mail.send", {"to": "a@b.c"}, queue="mail", retries=5)
    ...             return await job.status(), [found.name async for found in client.jobs.find(queue="mail")]
    >>> asyncio.run(main())
    ('pending', ['mail.send'])
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
        self._wire = wire_to(url, token=token, insecure=insecure, timeout_s=seconds(timeout, field="timeout"))
        self._http = httpx.AsyncClient(headers=self._wire.headers, verify=verify, transport=transport)
        self._core = core = Core(store=store, tries=tries or Tries(), rng=rng or random.SystemRandom())
        self._store = StoreCore(core)
        self._batch = BatchCore(core)
        self.jobs = AsyncJobs(core, self.run, self.follow)
        """find them, and act on many"""
        self.queues = AsyncQueues(QueueCore(core), self.run)
        self.schedules = AsyncSchedules(ScheduleCore(core), self.run, self.handle)
        self.batches = AsyncBatches(self._batch, self.run)

    # submit -----------------------------------------------------------------------------------------

    async def submit(self, name: str, payload: Any = None, **options: Unpack[SubmitOptions]) -> AsyncHandle:
        """Submit one job of the task `name`; `payload` has its arguments by name. Options are those of the library.
        Returns when it is stored."""
        made = await self.run(self._core.submit(new_job(name, payload, options)))
        return self._made(made)

    def job(self, name: str, payload: Any = None, **options: Unpack[SubmitOptions]) -> NewJob:
        """A job for `submit_many` and `group`."""
        return new_job(name, payload, options)

    async def submit_many(
        self, jobs: Iterable[NewJob], *, chunk: int = 1000, progress: Callable[[int], object] | None = None
    ) -> list[AsyncHandle]:
        """Submit many jobs (`client.job(...)`). Each chunk is stored whole or not at all; `progress` is called with the
        number stored so far after each. An error names the job by its place among all of them, and its notes say how
        many are stored."""
        return [
            self._made(made) for made in await self.run(self._core.submit_many(jobs, chunk=chunk, progress=progress))
        ]

    async def group(
        self,
        members: Iterable[NewJob],
        *,
        then: NewJob,
        when: Literal["succeeded", "settled"] = "succeeded",
        failed: Literal["skip", "fail"] = "skip",
    ) -> AsyncGroup:
        """Submit many jobs and one that runs once, when all of them have succeeded (or are settled), all or none. When
        one fails, it is skipped, or fails if so told."""
        made = await self.run(self._core.submit_group(members, then, when=when, failed=failed))
        return AsyncGroup(tuple(map(self._made, made.members)), self._made(made.then))

    def handle(self, job_id: str) -> AsyncHandle:
        """Any job, by id."""
        return AsyncHandle(self._core, self.run, self.follow, job_id)

    # look -------------------------------------------------------------------------------------------

    async def stores(self) -> list[StoreSeen]:
        """The stores of the server."""
        return await self.run(self._store.stores())

    async def stats(self) -> Stats:
        """Counts, rates and ages at a glance."""
        return await self.run(self._store.stats())

    async def workers(self) -> list[Working]:
        """Who is at work, and on what."""
        return await self.run(self._store.workers())

    async def drain_worker(self, worker: str) -> list[Session]:
        """Ask a worker, by its name or by the id of one of its sessions, to end in good order: it takes no more jobs,
        has its grace to finish what it runs, and exits. The sessions that were asked; raises `WorkerNotFound`."""
        return await self.run(self._store.drain(worker))

    async def snapshot(self) -> Snapshot:
        """What the server last saw of the store; costs the store nothing."""
        return await self.run(self._store.snapshot())

    async def history(self) -> list[Sample]:
        """What the numbers of the store were: the last ten minutes closely, the last day roughly."""
        return await self.run(self._store.history())

    async def check(self) -> Checked:
        """Check some jobs against every invariant; the next call goes on from there."""
        return await self.run(self._store.check())

    async def load_summary(self, job_id: str) -> Summary:
        """The numbers of a load test: its end, or how it stood lately."""
        return await self.run(self._batch.load_summary(job_id))

    def stream(self) -> AsyncGenerator[Snapshot, None]:
        """The store at a glance, now and whenever it changes; for ever."""
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
        """Do what a flow says; what it returns."""
        check_open(self._http)
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = next(flow)
                    continue
                try:
                    answer = await self._send(step)
                except Lost as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as done:
            found: T = done.value
            return found

    async def follow(self, following: Following[T]) -> AsyncGenerator[T, None]:
        """Read a stream, and open it again when it breaks."""
        while not following.over:
            check_open(self._http)
            pause_s: float | None = None
            try:
                async with self._http.stream(**self._wire.streaming(following.path, following.headers)) as response:
                    body = b"" if response.is_success else await response.aread()
                    pause_s = following.begun(answer_of(response, body))
                    if pause_s is None:
                        async for chunk in response.aiter_bytes():
                            for each in following.feed(chunk):
                                yield each
            except BROKEN as error:
                pause_s = following.lost(lost(error))
            if not following.over:
                await asyncio.sleep(following.lost() if pause_s is None else pause_s)

    async def _send(self, call: Call[Any]) -> Any:
        try:
            response = await self._http.request(**self._wire.request(call))
        except BROKEN as error:
            raise lost(error) from error
        return answer_of(response, response.content)

    def _made(self, made: Submitted) -> AsyncHandle:
        return AsyncHandle(self._core, self.run, self.follow, made.id, created=made.created, durability=made.durability)


__all__ = ["AsyncClient"]
