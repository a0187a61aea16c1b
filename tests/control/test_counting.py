"""Whatever happens in whatever order: attempts are counted right and every job settles exactly once."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings, strategies as st

from mainstay.control import Completion, Control, Failure, JobRequest, Outcome
from mainstay.control.rules.retry import backoff
from mainstay.lifecycle import JOB
from mainstay.model import ErrorInfo, Job, RetryPolicy
from mainstay.stores import Query
from mainstay.testing import MemoryStore, VirtualClock

BOOM = ErrorInfo(type="ValueError", message="boom")


@given(
    kind=st.sampled_from(["exponential", "linear", "fixed"]),
    base_s=st.floats(0, 1e6),
    cap_s=st.floats(0, 1e9),
    n=st.integers(1, 1_000_000),
    seed=st.integers(0, 1000),
)
def test_a_backoff_lies_between_zero_and_its_full_length_and_never_above_the_cap(
    kind: str, base_s: float, cap_s: float, n: int, seed: int
) -> None:
    def policy(jitter: bool) -> RetryPolicy:
        return RetryPolicy(kind=kind, base_s=base_s, cap_s=cap_s, jitter=jitter)  # type: ignore[arg-type]

    full = backoff(policy(False), n, random.Random(seed))

    assert 0 <= full <= cap_s
    assert 0 <= backoff(policy(True), n, random.Random(seed)) <= full
    if n == 1:
        assert full == min(base_s, cap_s)


class Fleet:
    """Several workers on one store, driven by chance: they complete, fail, drain, crash and come back as ghosts."""

    def __init__(self, seed: int, jobs: int, retries: int, crash_budget: int) -> None:
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.control = Control(self.store, rng=random.Random(seed + 1))
        self.workers = [Control(self.store, rng=random.Random(seed + 2 + n)) for n in range(3)]
        self.jobs, self.retries, self.crash_budget = jobs, retries, crash_budget
        self.ghosts: list[Job] = []
        self.succeeded: list[str] = []

    async def run(self) -> list[Job]:
        plan = self.control.jobs.plan(retries=self.retries, crash_budget=self.crash_budget, backoff_base="1s")
        await self.control.jobs.submit_many(JobRequest("t", n, plan) for n in range(self.jobs))
        for _ in range(400):
            rows = (await self.store.find(Query(), limit=1000)).jobs
            if all(JOB.states[row.status].settled for row in rows):
                return rows
            await asyncio.gather(*(self._work(worker) for worker in self.workers))
            await self._haunt()
            self.clock.advance(self.rng.choice([0.5, 3, 10]))
            await asyncio.gather(self.control.sweeper.sweep(), Control(self.store).sweeper.sweep())
        raise AssertionError("some jobs never settled")

    async def _work(self, worker: Control) -> None:
        session = await worker.claims.open_session()
        jobs = await worker.claims.claim(["default"], session.id, self.rng.randint(1, 5))
        await worker.claims.start([job for job in jobs if self.rng.random() < 0.5])
        done, failed, drained = [], [], []
        for job in jobs:
            fate = self.rng.random()
            if fate < 0.35:
                done.append(Completion(job, job.token))
            elif fate < 0.75:
                failed.append(Failure(job, BOOM, crashed=self.rng.random() < 0.2))
            elif fate < 0.85:
                drained.append(job)
            else:
                self.ghosts.append(job)
        self._note(await worker.attempts.complete(done))
        await worker.attempts.fail(failed)
        await worker.attempts.release(drained, reason="drain")

    async def _haunt(self) -> None:
        """Ghosts report late; some of them in time after all."""
        late = [job for job in self.ghosts if self.rng.random() < 0.3]
        self._note(await self.control.attempts.complete([Completion(job, job.token) for job in late]))

    def _note(self, outcomes: list[Outcome]) -> None:
        self.succeeded += [one.job.id for one in outcomes if one.outcome == "applied" and one.job is not None]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    jobs=st.integers(1, 12),
    retries=st.integers(0, 3),
    crash_budget=st.integers(1, 3),
)
def test_attempts_never_exceed_their_budgets_and_every_job_settles_exactly_once(
    seed: int, jobs: int, retries: int, crash_budget: int
) -> None:
    async def story() -> None:
        fleet = Fleet(seed, jobs, retries, crash_budget)
        rows = await fleet.run()
        assert len(rows) == jobs
        assert len(fleet.succeeded) == len(set(fleet.succeeded))
        assert sorted(fleet.succeeded) == sorted(row.id for row in rows if row.status == "succeeded")
        for row in rows:
            events = await fleet.store.events(row.id)
            assert fleet.store.chain.first_break(row, events) is None
            claims = [event for event in events if event.to == "running"]
            assert row.failures <= retries + 1
            assert row.crashes <= crash_budget
            assert row.token == len(claims) >= row.starts
            assert row.failures == sum("attempt" in event.data for event in events)
            assert row.crashes == sum("crash" in event.data for event in events)
            ended = row.failures + row.crashes + row.releases + (row.status == "succeeded")
            assert ended == row.token
            assert events[-1].to == row.status
            assert all(not JOB.states[event.source].final for event in events if event.source is not None)

    asyncio.run(story())
