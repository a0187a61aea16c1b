"""Who is blamed when workers die, over whole stories drawn by chance: bystanders never, poison within bounds."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from mainstay.control import Completion, Control
from mainstay.control.rules.blame import ALONE_LOSSES, SUSPECT_LOSSES, is_blamed, is_suspect, runs_alone
from mainstay.model import BLANK, LEAD_QUEUE, Job, Options, RetryPolicy
from mainstay.stores import Query
from mainstay.testing import MemoryStore, VirtualClock


class Shop:
    """Workers on one store, each as an engine behaves: it runs what it claims side by side, unless a job is to run
    alone. A poison job kills the worker that runs it, with all it holds."""

    def __init__(self, seed: int, *, jobs: int, poison: int, budget: int) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.control = Control(self.store, rng=random.Random(seed + 1))
        self.names = ["poison"] * poison + ["good"] * jobs
        self.chance.shuffle(self.names)
        self.budget = budget
        self.begun: dict[str, int] = {}

    async def run(self, *, outside_kills: int = 0) -> list[Job]:
        for name in self.names:
            await self.control.jobs.submit(name, None, crash_budget=self.budget)
        for _ in range(500):
            rows = (await self.store.find(Query(), limit=1000)).jobs
            if all(row.settled_ms is not None for row in rows):
                return rows
            killed = outside_kills > 0 and self.chance.random() < 0.3
            outside_kills -= killed
            await self._work(killed=killed)
        raise AssertionError("some jobs never settled")

    async def _work(self, *, killed: bool) -> None:
        session = await self.control.claims.open_session()
        jobs = await self.control.claims.claim(["default"], session.id, self.chance.randint(1, 4))
        if any(runs_alone(job) for job in jobs):
            alone = next(job for job in jobs if runs_alone(job))
            await self.control.attempts.release([job for job in jobs if job is not alone], reason="another runs alone")
            jobs = [alone]
        # the start of a suspect is stored first; that of another is stored a moment later, or never
        started = [job for job in jobs if is_suspect(job) or self.chance.random() < 0.5]
        await self.control.claims.start(started)
        for job in jobs:
            self.begun[job.id] = self.begun.get(job.id, 0) + 1
        if killed or any(job.name == "poison" for job in jobs):
            self.clock.advance(9)
            await Control(self.store).sweeper.sweep()
        else:
            await self.control.attempts.complete([Completion(job) for job in jobs])
            await self.control.claims.close_session(session.id)


@settings(max_examples=60)
@given(seed=st.integers(0, 100_000), jobs=st.integers(1, 12), poison=st.integers(0, 4), budget=st.integers(2, 4))
def test_no_bystander_of_poison_is_given_up_and_poison_is_within_bounds(
    seed: int, jobs: int, poison: int, budget: int
) -> None:
    async def story() -> None:
        shop = Shop(seed, jobs=jobs, poison=poison, budget=budget)
        for row in await shop.run():
            if row.name == "good":
                assert (row.status, row.crashes) == ("succeeded", 0)
            else:
                assert (row.status, row.crashes) == ("quarantined", budget)
                assert shop.begun[row.id] <= ALONE_LOSSES + budget

    asyncio.run(story())


@settings(max_examples=60)
@given(seed=st.integers(0, 100_000), jobs=st.integers(1, 12), kills=st.integers(0, ALONE_LOSSES + 2))
def test_workers_killed_from_outside_cost_no_job_its_life(seed: int, jobs: int, kills: int) -> None:
    """As often as it takes to be suspected, and twice more: one less than the default crash budget."""

    async def story() -> None:
        shop = Shop(seed, jobs=jobs, poison=0, budget=3)
        assert {row.status for row in await shop.run(outside_kills=kills)} == {"succeeded"}

    asyncio.run(story())


@pytest.mark.parametrize("losses", range(ALONE_LOSSES + 2))
def test_a_loss_is_blamed_on_a_job_that_ran_alone_and_on_no_other(losses: int) -> None:
    job = _job(losses=losses, budget=3)
    assert is_suspect(job) == (losses >= SUSPECT_LOSSES)
    assert is_blamed(job) == runs_alone(job) == (losses >= ALONE_LOSSES)
    assert is_blamed(_job(losses=losses, budget=1)), "what is not to run again is not run again"


@pytest.mark.parametrize("losses", [0, SUSPECT_LOSSES, ALONE_LOSSES])
@pytest.mark.parametrize("budget", [1, 3])
def test_a_job_that_managers_lead_is_not_blamed_for_their_end(losses: int, budget: int) -> None:
    led = msgspec.structs.replace(_job(losses=losses, budget=budget), queue=LEAD_QUEUE)
    assert [rule(led) for rule in (is_blamed, is_suspect, runs_alone)] == [False, False, False]


def _job(*, losses: int, budget: int) -> Job:
    options = Options(retry=RetryPolicy(crash_budget=budget))
    return msgspec.structs.replace(BLANK, id="a", losses=losses, options=options)
