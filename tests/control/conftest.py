"""Control on each store, in virtual time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.control import Control
from mainstay.lifecycle import JOB, table_of
from mainstay.model import Job, Session
from mainstay.stores import JobStore, Query, open_store
from mainstay.testing import VirtualClock


class Bench:
    """A store, its clock, and a control with known chance; some handles that tests use all the time."""

    def __init__(self, store: JobStore, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.control = Control(store, rng=random.Random(1))
        self.worker = Control(store, rng=random.Random(2))
        """another process: its beats are not those of `control`, which sweeps"""

    async def session(self) -> Session:
        return await self.worker.claims.open_session(worker="w")

    async def claimed(self, name: str = "demo.task", **options: object) -> Job:
        """A job submitted and claimed by a session of its own."""
        await self.control.jobs.submit(name, {"n": 1}, **options)
        session = await self.session()
        jobs = await self.worker.claims.claim([str(options.get("queue", "default"))], session.id, 1)
        return jobs[0]

    async def running(self, name: str = "demo.task", **options: object) -> Job:
        """As `claimed`, and its start is committed."""
        job = await self.claimed(name, **options)
        assert await self.worker.claims.start([job]) == [True]
        return await self.control.jobs.get(job.id)

    async def path(self, job_id: str) -> list[str]:
        """The states a job went through."""
        return [event.to for event in await self.control.jobs.events(job_id) if event.flag != "note"]

    async def everything(self) -> list[Job]:
        return (await self.store.find(Query(), limit=1000)).jobs

    async def assert_sound(self) -> None:
        """What holds at every moment: the chain verifies and every unflagged event obeys the table."""
        for job in await self.everything():
            events = await self.store.events(job.id, after=job.trimmed_seq, limit=10_000)
            assert self.store.chain.first_break(job, events) is None
            assert events[-1].to == job.status
            table = table_of(job.parent)
            for event in events:
                if event.flag == "" and event.source is not None:
                    assert table.allows(event.source, event.to), (event.source, event.to)
            state = JOB.get(job.status) if job.parent is None else table.get(job.status)
            assert state is not None
            if state.settled:
                assert job.session is None


@pytest.fixture(params=["memory", "sqlite"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    clock = VirtualClock()
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    store = await open_store(url, clock=clock)
    found = Bench(store, clock)
    try:
        yield found
        await found.assert_sound()
    finally:
        await store.close()
