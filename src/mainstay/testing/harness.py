"""Harness: an app under test. Its jobs go to a store in memory, and run in virtual time when the test says so."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from ..app import App
from ..clock import SystemClock, instant_ms, seconds
from ..control import Control, Duty
from ..control.schedules import next_tick, tick_ms, tick_time
from ..errors import InvalidInput, MainstayError, UnknownTask
from ..lifecycle import table_of
from ..model import Job, Leadership
from ..stores import Durability, InsertResult, JobStore, NewJob, StoreProxy, Written
from ..stores.memory import MemoryStore
from ..task import Call, Task
from ..worker import context
from .clock import VirtualClock
from .results import DrainError, DrainResult, RanJob, SubmittedJob, listing, matching, submitted_of, wanted
from .worker import Worker, move_to

R = TypeVar("R")
Duration = str | timedelta

#: there is no other candidate for the lead
_LEADS_S = 3600.0
#: how often the times of a custom `When` are checked, which only the ticker can ask
_LOOK_MS = 1000


class Harness:
    """An app under test: `with Harness(app) as box:`, or `async with`; both do the same.

    Within the block the app uses its own store in memory, whose time moves only when the test moves it. No job runs by
    itself: `drain` runs all jobs with their retries and delays; `run` submits one job and runs it to its end. With
    `inline=True` every submit does so. The harness runs jobs with the engine of workers, without child processes: a
    task with `process=True` or a plain function of a batch runs in a thread, one at a time, unless `processes` names
    the app for its process: `"shop.jobs:app"`.

    Virtual time begins at `now` (an aware datetime; default: the current time). `seed` is the seed of random choices,
    such as the jitter of retries. `concurrency` is how many jobs run at a time, `patience` how long a job may run in
    real time before it counts as hanging, and `limit` the most runs of one drain.
    """

    def __init__(
        self,
        app: App,
        *,
        inline: bool = False,
        now: datetime | None = None,
        seed: int = 1,
        concurrency: int | None = None,
        patience: Duration = "5s",
        limit: int = 2000,
        processes: str | None = None,
    ) -> None:
        if not isinstance(app, App):
            raise InvalidInput("app", f"{app!r} is not an App")
        self.app = app
        self.clock = VirtualClock(SystemClock().now_ms() if now is None else instant_ms(now, field="now"))
        self.store = MemoryStore(self.clock)
        self.store.observer = self._record
        self._patience_s = seconds(patience, field="patience")
        self._limit = limit
        self._processes = processes
        self._concurrency = concurrency
        self._used: JobStore = _Inline(self.store, self) if inline else self.store
        # it sends no heartbeats, so a jump of the clock does not make it wait before a sweep
        self._sweeper = Control(self.store, settings=app.settings, rng=random.Random(seed))
        self._rng = random.Random(seed)
        self._submitted: dict[str, Job] = {}
        self._written: list[Written] = []
        self._turn = threading.Lock()
        self._entered = contextlib.ExitStack()

    # use ----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._entered.enter_context(self.app.using(self._used))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    # time ---------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    def advance(self, by: Duration) -> None:
        """Advance virtual time. Nothing runs: `drain(until="0s")` then runs the jobs that have become due."""
        self.clock.advance(seconds(by, field="by"))

    # run ----------------------------------------------------------------------------------------

    async def drain(self, *, until: Duration | None = None, patience: Duration | None = None) -> DrainResult:
        """Run all due jobs, move the clock to the next due time, and so on until no job is left.

        With `until` it stops after that span of virtual time, ticks the app's schedules on the way, and leaves the
        clock at its end. Without it schedules do not tick, because they would never end.
        """
        self._check_entered()
        until_ms = None if until is None else self.clock.now_ms() + round(seconds(until, field="until") * 1000)
        patience_s = self._patience_s if patience is None else seconds(patience, field="patience")
        async with self._alone():
            before, began_ms = len(self._written), self.clock.now_ms()
            await self._work(until_ms, patience_s)
            took = timedelta(milliseconds=self.clock.now_ms() - began_ms)
            return self._summary(self._written[before:], took)

    def drain_sync(self, *, until: Duration | None = None, patience: Duration | None = None) -> DrainResult:
        """`drain`, for tests without an event loop."""
        return self.app.client.run(lambda: self.drain(until=until, patience=patience), what="drain_sync")

    async def run(self, call: Call[R]) -> R:
        """Submit one job (`task.job(...)`), run it to its end, and return its result. Raises `JobFailed`. Virtual time
        passes as far as the job needs; other jobs that become due until then run as well."""
        self._check_entered()
        if not isinstance(call, Call):
            raise InvalidInput("run", f"{call!r} is not a job to run; write box.run(task.job(...))")
        (handle,) = await self.app.submit_many([call])
        await self._run_to_end([handle.id])
        job = await handle.job()
        if not _is_settled(job):
            why = f": {job.reason}" if job.reason else ""
            raise DrainError(f"job {job.id} ({job.name}) stays {job.status}{why}")
        return await handle.result()

    def run_sync(self, call: Call[R]) -> R:
        """`run`, for tests without an event loop."""
        return self.app.client.run(lambda: self.run(call), what="run_sync")

    # look ---------------------------------------------------------------------------------------

    def submitted(self, task: Task[..., Any] | str | None = None, /, **arguments: Any) -> list[SubmittedJob]:
        """The jobs submitted since the block began, oldest first: all, of one task, or with these arguments."""
        jobs = [job for job in list(self._submitted.values()) if job.parent is None]
        submitted = [submitted_of(self.app, first, self._row(first)) for first in jobs]
        return matching(self.app, submitted, task, arguments)

    def assert_submitted(
        self, task: Task[..., Any] | str | None = None, /, *, times: int | None = None, **arguments: Any
    ) -> SubmittedJob:
        """The newest job like this; raises an AssertionError that lists the submitted jobs. `times` is the required
        number of such jobs; by default, at least one."""
        if times is not None and times < 1:
            raise InvalidInput("times", "must be at least 1; write assert_not_submitted for none")
        found = self.submitted(task, **arguments)
        if (len(found) == times) if times is not None else found:
            return found[-1]
        often = "" if times is None else f" {times} times"
        raise AssertionError(
            f"{wanted(task, arguments)} was not submitted{often}, but {len(found)} times; {listing(self.submitted())}"
            if found
            else f"{wanted(task, arguments)} was not submitted{often}; {listing(self.submitted())}"
        )

    def assert_not_submitted(self, task: Task[..., Any] | str | None = None, /, **arguments: Any) -> None:
        """Raises an AssertionError if there is a job like this."""
        if found := self.submitted(task, **arguments):
            raise AssertionError(f"{wanted(task, arguments)} was submitted; {listing(found)}")

    # within -------------------------------------------------------------------------------------

    async def _run_to_end(self, ids: Sequence[str]) -> None:
        """Work until these jobs are settled, or no due job is left."""
        if _in_a_job():
            return  # the drain that runs that job also runs these
        async with self._alone():
            await self._work(None, self._patience_s, ids=ids)

    async def _work(self, until_ms: int | None, patience_s: float, *, ids: Sequence[str] = ()) -> None:
        """Run due jobs, move the clock, and so on."""
        duties = () if until_ms is None else self.app.duties(self._sweeper)
        async with Worker(
            self.app,
            self.store,
            self.clock,
            concurrency=self._concurrency,
            patience_s=patience_s,
            limit=self._limit,
            processes=self._processes,
            rng=self._rng,
        ) as worker:
            while True:
                if duties:
                    await self._tick(duties, worker)
                await self._sweeper.sweeper.sweep()
                queues, before = await self._queues(), len(worker.taken)
                await worker.settle(queues, until_ms=until_ms)
                if until_ms is None:
                    self._check_known(worker.taken[before:])
                if ids and self._are_settled(ids):
                    break
                if await self._queues() != queues:
                    continue  # a job was submitted to a new queue
                next_ms = await self._next_ms(queues, schedules=until_ms is not None)
                if next_ms is None or (until_ms is not None and next_ms > until_ms):
                    break
                move_to(self.clock, next_ms)
        if until_ms is not None:
            move_to(self.clock, until_ms)

    async def _tick(self, duties: Sequence[Duty], worker: Worker) -> None:
        """The leader's duties: submit the jobs of due schedules."""
        lead = await self.store.lead("leader", worker.session.id, _LEADS_S)
        for duty in duties:
            await duty.run(lead)

    async def _queues(self) -> tuple[str, ...]:
        return tuple(sorted({*self.app.queues, *(await self.store.stats()).queues}))

    async def _next_ms(self, queues: Sequence[str], *, schedules: bool) -> int | None:
        now_ms = self.clock.now_ms()
        times = [await self.store.due(queues), self.store.next_expiry()]
        if schedules:
            times += [self._next_tick_ms(now_ms)]
        # a due job that was not claimed waits for something other than time
        return min((at for at in times if at is not None and at > now_ms), default=None)

    def _next_tick_ms(self, now_ms: int) -> int | None:
        ticks = []
        for spec in self.app.schedules.values():
            when = spec.when.revived()
            if when is None:
                ticks.append(now_ms + _LOOK_MS)  # a custom object: only the ticker can ask it
            elif (at := next_tick(when, tick_time(now_ms))) is not None:
                ticks.append(tick_ms(at))
        return min(ticks, default=None)

    def _check_known(self, taken: Sequence[Job]) -> None:
        """Refuse jobs without a handler, which would stay parked."""
        for job in taken:
            try:
                self.app.work(job.kind, job.name)
            except UnknownTask as error:
                raise DrainError(f"job {job.id} cannot be run: {error}") from None

    def _summary(self, written: Sequence[Written], took: timedelta) -> DrainResult:
        runs = [
            RanJob(
                id=after.id,
                task=after.name,
                attempt=after.attempt,
                at=datetime.fromtimestamp((after.claimed_ms or 0) / 1000, UTC),
            )
            for before, after, _ in written
            if before is not None and after.token > before.token
        ]
        rows = [self._row(first) for first in self._submitted.values()]
        ended = {after.id for before, after, _ in written if _is_settled(after)}
        return DrainResult(
            runs=tuple(runs),
            settled=tuple(job for job in rows if _is_settled(job) and job.id in ended),
            left=tuple(job for job in rows if not _is_settled(job)),
            took=took,
        )

    def _are_settled(self, ids: Sequence[str]) -> bool:
        return all(_is_settled(self._row(self._submitted[job_id])) for job_id in ids if job_id in self._submitted)

    def _row(self, first: Job) -> Job:
        """The current row; the first one if the job was deleted."""
        (row,) = _result_of(self.store.get([first.id]))
        return row or first

    def _record(self, written: Sequence[Written]) -> None:
        self._written += written
        self._submitted.update((after.id, after) for before, after, _ in written if before is None)

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """One drain at a time. Another may be on another loop, so it polls the lock."""
        if _in_a_job():
            raise MainstayError(
                "a job cannot drain the store it runs in; the running drain also runs the jobs that it submits"
            )
        while not self._turn.acquire(blocking=False):  # noqa: ASYNC110 - an Event belongs to one loop
            await asyncio.sleep(0.001)
        try:
            yield
        finally:
            self._turn.release()

    def _check_entered(self) -> None:
        if self.app.client.connection.control is None or self.app.control.store is not self._used:
            raise MainstayError("the harness is not in use; write `with Harness(app) as box:` around this")


class _Inline(StoreProxy):
    """The store of the app when every submit runs its jobs."""

    def __init__(self, store: MemoryStore, harness: Harness) -> None:
        super().__init__(store)
        self._harness = harness

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        results = await self._store.insert(jobs, durability=durability, lead=lead)
        await self._harness._run_to_end([each.id for each in results])  # noqa: SLF001 - its other half
        return results


def _in_a_job() -> bool:
    try:
        context()
    except MainstayError:
        return False
    return True


def _is_settled(job: Job) -> bool:
    state = table_of(job.parent).get(job.status)
    return state is not None and state.settled


def _result_of(coroutine: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine that never waits, as those of the memory store: reading needs no loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    coroutine.close()
    raise AssertionError("the memory store waited")
