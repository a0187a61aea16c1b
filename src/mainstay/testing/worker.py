"""A worker for tests: a real engine on the memory store, with the clock of the test.

The engine claims, runs and acknowledges as in production. Two things differ. The worker wakes it after the clock has
moved, because in virtual time nothing becomes due by waiting. And its claims are watched: when one is empty while
nothing runs and every end is stored, nothing is left to do at this time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from types import TracebackType
from typing import Any, Self

from ..app import App
from ..control import Control
from ..model import Job, Session
from ..stores import StoreProxy, Wake
from ..stores.memory import MemoryStore
from ..worker import Children, Engine, EngineProcess, WorkerOptions
from .clock import VirtualClock
from .results import DrainError

#: it sends no heartbeats, and the clock may jump by years
_LEASE_S = 1e10
#: later than any time: the deadline of a run without a limit
_NEVER_MS = 1 << 60


class Worker:
    """Runs due jobs, and detects when none is left. `async with Worker(...)`, on the loop that runs the jobs."""

    def __init__(
        self,
        app: App,
        store: MemoryStore,
        clock: VirtualClock,
        *,
        concurrency: int | None,
        patience_s: float,
        limit: int,
        processes: str | None,
        rng: random.Random,
    ) -> None:
        self._app = app
        self._store = store
        self._clock = clock
        self._concurrency = concurrency
        self._patience_s = patience_s
        self._limit = limit
        self._processes = processes
        self._rng = rng
        self._watched = _Watched(store, limit)
        self._control = Control(self._watched, settings=app.settings, rng=rng)
        self._retired = False
        self._stack = contextlib.AsyncExitStack()
        self._engine: Engine
        self.session: Session

    @property
    def taken(self) -> Sequence[Job]:
        """Every job it has claimed, in order."""
        return self._watched.taken

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._app.lifespan())
        self.session = await self._open_session()
        await self._stack.enter_async_context(self._working())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def settle(self, queues: Sequence[str], *, until_ms: int | None = None) -> None:
        """Run until nothing of these queues is ready and nothing runs."""
        self._engine.queues = tuple(queues)
        while True:
            before = len(self.taken)
            await self._let_finish(until_ms)
            if not self._retired:
                await self._watched.asked_again()
                self._check_limit()
            if self._retired:
                await self._replace_engine()
            elif len(self.taken) == before:
                return

    # the engine ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        self._start_engine()
        try:
            yield
        finally:
            await self._stop_engine()
            await self._control.claims.close_session(self.session.id)

    def _start_engine(self) -> None:
        self._retired = False
        self._engine = Engine(
            self._app,
            self._control,
            self.session,
            queues=self._app.queues,
            concurrency=self._concurrency,
            process=EngineProcess(children=self._children(), open_session=self._open_session, on_retire=self._retire),
            rng=self._rng,
        )
        self._engine.start()

    def _children(self) -> Children | None:
        if self._processes is None:
            return None
        most = self._concurrency or self._app.settings.concurrency
        return Children(WorkerOptions(target=self._processes, name="testing", log_level="warning"), most=most)

    async def _stop_engine(self) -> None:
        self._engine.drain(0)
        await self._engine.stopped.wait()

    async def _replace_engine(self) -> None:
        """As a supervisor does for an engine that is no longer clean."""
        queues = self._engine.queues
        await self._stop_engine()
        self._start_engine()
        self._engine.queues = queues

    async def _open_session(self) -> Session:
        return await self._control.claims.open_session(worker="testing", lease_s=_LEASE_S)

    def _retire(self, reason: str) -> None:  # noqa: ARG002 - the engine has logged the reason
        self._retired = True
        self._watched.raise_alarm()

    # the end of running jobs --------------------------------------------------------------------

    async def _let_finish(self, until_ms: int | None) -> None:
        """Wait for running jobs in real time. A job that runs too long counts as hanging, and virtual time moves to its
        next deadline. The engine may retire then."""
        async with _running(self._engine.idle()) as idle:
            seen = self._news
            while not idle.done() and not self._retired:
                await self._watched.first_of(idle, timeout_s=self._patience_s)
                self._check_limit()
                if not idle.done() and seen == self._news:
                    await self._move_on(until_ms)
                seen = self._news

    @property
    def _news(self) -> tuple[int, int, int]:
        """Numbers that change when something happens."""
        causes = sum(1 for run in self._engine.running if run.cause)
        return len(self.taken), self._engine.held, causes

    async def _move_on(self, until_ms: int | None) -> None:
        ends = [(run.kill_ms if run.cause else run.deadline_ms, run.job) for run in self._engine.running]
        if not ends:
            return
        at_ms, job = min(ends, key=lambda end: end[0])
        due_ms = await self._store.due(self._engine.queues)
        if due_ms is not None and due_ms < at_ms:
            at_ms = due_ms
        if at_ms >= _NEVER_MS or (until_ms is not None and at_ms > until_ms):
            raise DrainError(
                f"job {job.id} ({job.name}) has been running for {self._patience_s:g}s of real time, and has no "
                "timeout; give the task a timeout, let it end, or write drain(patience=...) if it needs longer"
            )
        move_to(self._clock, at_ms)
        self._watched.ring()

    def _check_limit(self) -> None:
        if len(self.taken) <= self._limit:
            return
        often = ", ".join(f"{name} {n} times" for name, n in Counter(job.name for job in self.taken).most_common(3))
        raise DrainError(
            f"stopped after {self._limit} runs, and more jobs are due: {often}. Does a job submit or postpone itself "
            "forever? Drain up to some time (until='1h'), or raise the limit (limit=...)"
        )


def move_to(clock: VirtualClock, at_ms: int) -> None:
    """Move a clock forward to a time; a time in the past changes nothing."""
    ahead_ms = at_ms - clock.now_ms()
    if ahead_ms > 0:
        clock.advance(ahead_ms / 1000)


class _Watched(StoreProxy):
    """The store of the engine: claims are watched, and waits for a queue can be woken."""

    def __init__(self, store: MemoryStore, limit: int) -> None:
        super().__init__(store)
        self._limit = limit
        self.taken: list[Job] = []
        self._alarm = asyncio.Event()
        self._answered = asyncio.Event()
        self._bells: set[_Bell] = set()

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        jobs: list[Job] = []
        if len(self.taken) > self._limit:
            self.raise_alarm()
        else:
            jobs = await self._store.claim(queues, session, n, mark=mark)
        self.taken += jobs
        self._answered.set()
        return jobs

    def wake(self, topics: Sequence[str]) -> Wake:
        wake = self._store.wake(topics)
        if not any(topic.startswith("queue:") for topic in topics):
            return wake
        return _Bell(wake, self._bells)

    def raise_alarm(self) -> None:
        """Wake everything that waits here."""
        self._alarm.set()
        self._answered.set()

    def ring(self) -> None:
        for bell in self._bells:
            bell.ring()

    async def asked_again(self) -> None:
        """Wait for the result of a claim that starts after this call, or for an alarm."""
        self._answered.clear()
        self.ring()
        await self._answered.wait()

    async def first_of(self, done: asyncio.Future[None], *, timeout_s: float) -> None:
        """Wait for `done`, an alarm, or the timeout."""
        async with _running(self._alarm.wait()) as alarm:
            await asyncio.wait({done, alarm}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        self._alarm.clear()


class _Bell:
    """A subscription that can be woken by a call."""

    def __init__(self, wake: Wake, bells: set[_Bell]) -> None:
        self._wake = wake
        self._bells = bells
        self._rung = asyncio.Event()
        bells.add(self)

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout_s: float) -> bool:
        async with _running(self._wake.wait(timeout_s)) as woken, _running(self._rung.wait()) as rung:
            await asyncio.wait({woken, rung}, return_when=asyncio.FIRST_COMPLETED)
            self._rung.clear()
            return rung.done() or woken.result()

    async def close(self) -> None:
        self._bells.discard(self)
        await self._wake.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@contextlib.asynccontextmanager
async def _running(work: Awaitable[Any]) -> AsyncIterator[asyncio.Future[Any]]:
    """Run something during the block; cancel it at the end."""
    future = asyncio.ensure_future(work)
    try:
        yield future
    finally:
        future.cancel()
        await asyncio.wait([future])
