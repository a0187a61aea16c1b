"""What an engine does about claims that it and the store do not both know of: on the memory store, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from mainstay.model import IdSource, Job, QueueSettings
from mainstay.stores import Page, Query
from mainstay.testing import MemoryStore, VirtualClock, new_job
from mainstay.worker.engine import Engine
from tests.worker.test_engine import Shift


class Bench(Shift):
    """With a task that works until it is enough or it is told to stop, and says nothing meanwhile."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(MemoryStore(clock), clock)
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.stopped: asyncio.Queue[str] = asyncio.Queue()
        self.enough = asyncio.Event()
        self.ids = IdSource(random.Random(5))
        self.act(self.silent)

    async def silent(self) -> None:
        me = asyncio.current_task()
        run = next(run for run in self.engine.running if run.task is me)
        self.began.put_nowait(run.job.id)
        try:
            await self.enough.wait()
        finally:
            self.stopped.put_nowait(run.job.id)

    async def silent_unit(self) -> Job:
        """Give a job a unit, and wait until it runs."""
        store = self.client.store
        parent = new_job(self.clock, self.ids, queue="elsewhere")
        unit = new_job(self.clock, self.ids, name="silent", payload=b"\x80", parent=parent.job.id, unit="a")
        await store.insert([parent, unit])
        assert await asyncio.wait_for(self.began.get(), 60) == unit.job.id
        return await self.client.jobs.get(unit.job.id)

    async def silent_job(self) -> Job:
        job_id = await self.submit("silent")
        assert await asyncio.wait_for(self.began.get(), 60) == job_id
        return await self.client.jobs.get(job_id)

    def causes(self) -> list[str]:
        return [run.cause for run in self.engine.running]


async def until_one_runs(engine: Engine) -> None:
    while len(engine.running) > 1:
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench(VirtualClock())
    yield bench
    await bench.end()


async def test_a_unit_that_was_cancelled_is_told_to_stop_at_the_second_look(bench: Bench) -> None:
    engine = await bench.begin()
    unit = await bench.silent_unit()
    await bench.client.operations.cancel(unit.id, actor="ann", reason="not wanted")
    cancelled = await bench.client.jobs.get(unit.id)
    assert (cancelled.status, cancelled.session) == ("cancelled", None)

    await engine._session.audit_claims()
    assert bench.causes() == [""], "it may be on its way: not at first sight"
    await engine._session.audit_claims()
    assert bench.causes() == ["lost"]

    assert await asyncio.wait_for(bench.stopped.get(), 60) == unit.id
    await engine.idle()
    assert await bench.client.jobs.get(unit.id) == cancelled
    assert await bench.client.store.refusals(unit.id) == [], "nothing was written about it"


async def test_a_job_that_was_taken_away_is_told_to_stop_and_the_others_go_on(bench: Bench) -> None:
    engine = await bench.begin()
    kept, taken = await bench.silent_job(), await bench.silent_job()
    await bench.client.store.set_queue(QueueSettings(name="default", paused=True))
    await bench.client.attempts.release([taken], reason="somebody else shall have it")
    for _ in range(2):
        await engine._session.audit_claims()

    assert await asyncio.wait_for(bench.stopped.get(), 60) == taken.id
    await asyncio.wait_for(until_one_runs(engine), 60)
    assert [(run.job.id, run.cause) for run in engine.running] == [(kept.id, "")]


async def test_what_runs_and_is_listed_is_left_alone(bench: Bench) -> None:
    engine = await bench.begin()
    await bench.silent_unit()
    await bench.silent_job()
    for _ in range(3):
        await engine._session.audit_claims()

    assert bench.causes() == ["", ""]


async def test_a_list_that_goes_on_says_nothing_about_what_is_not_in_it(bench: Bench) -> None:
    engine = await bench.begin()
    job = await bench.silent_job()

    async def a_full_page(query: Query, **_: object) -> Page:
        return Page([], job.id)

    bench.control.store.find = a_full_page  # type: ignore[method-assign,assignment]
    for _ in range(3):
        await engine._session.audit_claims()

    assert bench.causes() == [""]


async def test_what_is_claimed_while_the_store_is_asked_is_not_missing_there(bench: Bench) -> None:
    engine = await bench.begin()
    find = bench.control.store.find

    async def slow(query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        page = await find(query, cursor=cursor, limit=limit)
        await bench.silent_job()
        return page

    bench.control.store.find = slow  # type: ignore[method-assign]
    await engine._session.audit_claims()
    assert engine._session._audit._absent == set()
    await engine._session.audit_claims()

    assert bench.causes() == ["", ""]


async def test_what_ends_while_the_store_is_asked_is_not_missing_there(bench: Bench) -> None:
    engine = await bench.begin()
    job = await bench.silent_job()
    find = bench.control.store.find

    async def slow(query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        bench.enough.set()
        await engine.idle()
        return await find(query, cursor=cursor, limit=limit)

    bench.control.store.find = slow  # type: ignore[method-assign]
    await engine._session.audit_claims()

    assert (await bench.job(job.id)).status == "succeeded"
    assert engine._session._audit._absent == set()


async def test_a_job_that_waits_to_begin_and_is_not_ours_any_more_does_not_begin(bench: Bench) -> None:
    engine = await bench.begin(start=False)
    job_id = await bench.submit("silent")
    [job] = await bench.control.claims.claim(["default"], engine.session.id, 1)
    engine._runs._waiting.add([job], now_s=asyncio.get_running_loop().time())
    await bench.client.attempts.release([job], reason="taken away")
    for _ in range(2):
        await engine._session.audit_claims()

    assert engine.held == 0
    assert await bench.client.store.refusals(job_id) == []
