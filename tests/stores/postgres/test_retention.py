"""Trimming and deleting beside others: nobody waits, nobody is missed, and nothing goes that somebody needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest

from mainstay.lifecycle import Move
from mainstay.model import Job, Options
from mainstay.stores import TrimPolicy, open_store
from mainstay.stores.postgres.write import retention
from mainstay.testing import VirtualClock
from tests.conformance.world import World
from tests.stores.postgres.stands import ask, postgres, until

SOON_S = 60


class Shop:
    """A store, and somebody else's connection to its schema."""

    def __init__(self, url: str, world: World) -> None:
        server, _, options = url.partition("?")
        schema = options.split("&")[0].removeprefix("schema=")
        self.other = psycopg.connect(server, options=f"-c search_path={schema}")
        self.world = world

    async def settled(self, n: int = 1, **fields: Any) -> list[Job]:
        jobs = [await self.world.running(**fields) for _ in range(n)]
        for job in jobs:
            await self.world.move(job, "succeeded", holder="s1")
        return jobs

    async def family(self, units: int, *, open_units: int = 0) -> list[Job]:
        """A settled parent and its units."""
        parent = await self.world.running()
        family = [await self.world.running(parent=parent.id, unit=str(n)) for n in range(units)]
        await self.world.move(parent, "failed")
        for unit in family[open_units:]:
            await self.world.move(unit, "succeeded", holder="s1")
        return [parent, *family]

    async def trim(self, *statuses: str, batch: int = 1000) -> tuple[int, bool]:
        before = dict.fromkeys(statuses or ("succeeded", "failed"), self.world.clock.now_ms() + 1)
        async with asyncio.timeout(SOON_S):
            trimmed = await self.world.store.trim(TrimPolicy(settled_before_ms=before, batch=batch))
        return trimmed.jobs, trimmed.more

    async def left(self, jobs: Sequence[Job]) -> list[bool]:
        return [row is not None for row in await self.world.store.get([job.id for job in jobs])]


@pytest.fixture
async def shop(postgres_url: str) -> AsyncIterator[Shop]:
    clock = VirtualClock()
    store = await open_store(postgres_url, clock=clock)
    world = World(store, clock)
    await world.open("s1", lease_s=1e6)
    made = Shop(postgres_url, world)
    yield made
    made.other.close()
    await world.assert_sound()
    await store.close()


async def test_what_somebody_else_has_locked_is_passed_over_and_comes_next_time(shop: Shop) -> None:
    jobs = await shop.settled(3)
    shop.other.execute("SELECT 1 FROM jobs WHERE id = %s FOR SHARE", [jobs[1].id])

    assert await shop.trim() == (2, False)
    assert await shop.left(jobs) == [False, True, False]

    shop.other.rollback()
    assert await shop.trim() == (1, False)
    assert await shop.left(jobs) == [False, False, False]


async def test_a_family_of_which_one_unit_is_locked_stays_whole(shop: Shop) -> None:
    family = await shop.family(3)
    shop.other.execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", [family[2].id])
    assert await shop.trim() == (0, False)
    assert await shop.left(family) == [True] * 4

    shop.other.rollback()
    assert await shop.trim() == (1, False)
    assert await shop.left(family) == [False] * 4


async def test_a_family_that_was_sent_back_to_work_after_it_was_found_stays(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the statement that finds a parent and the one that locks its units, one of them is retried."""
    family = await shop.family(2)
    find = retention._Batch.find

    async def find_and_be_late(batch: retention._Batch) -> None:
        await find(batch)
        shop.other.execute("UPDATE jobs SET settled_ms = NULL WHERE id = %s", [family[1].id])
        shop.other.commit()

    monkeypatch.setattr(retention._Batch, "find", find_and_be_late)
    assert await shop.trim() == (0, False)
    assert await shop.left(family) == [True] * 3
    shop.other.execute("UPDATE jobs SET settled_ms = changed_ms WHERE id = %s", [family[1].id])
    shop.other.commit()


async def test_families_with_many_units_go_a_few_at_a_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    families = [await shop.family(3) for _ in range(3)]
    monkeypatch.setattr(retention, "_MOST_ROWS", 8)

    assert [await shop.trim() for _ in range(2)] == [(2, True), (1, False)]
    assert await shop.left([job for family in families for job in family]) == [False] * 12


async def test_one_family_goes_however_many_units_it_has(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    await shop.family(5)
    monkeypatch.setattr(retention, "_MOST_ROWS", 2)
    assert await shop.trim() == (1, False)


async def test_a_walk_in_batches_reaches_every_job_once(shop: Shop) -> None:
    jobs = await shop.settled(7)
    asked = [await shop.settled(1, options=Options(keep_s=10)) for _ in range(5)]
    kept = await shop.settled(1, options=Options(keep_s=1e6))
    shop.world.clock.advance(60)

    batches = []
    while not batches or batches[-1][1]:
        batches.append(await shop.trim(batch=3))

    assert [n for n, _ in batches] == [3, 3, 3, 3, 0]
    assert await shop.left([*jobs, *(job for each in asked for job in each), *kept]) == [False] * 12 + [True]


async def test_what_is_too_much_goes_in_batches_as_well(shop: Shop) -> None:
    jobs = []
    for _ in range(7):
        jobs += await shop.settled(1)
        shop.world.clock.advance(1)
    policy = TrimPolicy(keep_count={"succeeded": 2}, batch=2)
    taken = [(await shop.world.store.trim(policy)).jobs for _ in range(4)]
    assert taken == [2, 2, 1, 0]
    assert await shop.left(jobs) == [False] * 5 + [True] * 2


async def test_workers_go_on_while_a_batch_is_being_removed(shop: Shop) -> None:
    """Whoever trims holds locks on settled rows alone: claims, ends and beats of others do not wait for it."""
    world = shop.world
    await shop.settled(5)
    held, waiting = await world.running(), await world.submit()
    shop.other.execute("DELETE FROM events USING jobs WHERE job_id = id AND settled_ms IS NOT NULL")
    shop.other.execute("DELETE FROM jobs WHERE settled_ms IS NOT NULL")

    async with asyncio.timeout(SOON_S):
        assert (await world.move(held, "succeeded", holder="s1")).outcome == "applied"
        assert [job.id for job in await world.claim()] == [waiting.id]
        await world.store.beat(["s1"])
    shop.other.rollback()


async def test_a_long_history_is_shortened_under_an_open_claim(shop: Shop) -> None:
    world = shop.world
    job = await world.submit(queue="own")
    for n in range(20):
        job = (await world.move(job, Move(to="pending", reason=f"remark {n}", flag="note"))).job or job
    [held] = await world.claim(queues=["own"])

    assert (await world.store.trim(TrimPolicy(keep_events=12))).events == 10

    row, events = await world.row(held), await world.store.events(held.id)
    assert [event.seq for event in events] == list(range(11, 23))
    assert world.store.chain.first_break(row, events) is None
    assert (await world.move(held, "succeeded", holder="s1")).outcome == "applied"


async def test_a_job_that_moves_while_its_history_is_shortened_stays_checkable(shop: Shop) -> None:
    world = shop.world
    job = await world.submit()

    async def remarks() -> None:
        nonlocal job
        for n in range(60):
            job = (await world.move(job, Move(to="pending", reason=f"remark {n}", flag="note"))).job or job

    writing = asyncio.create_task(remarks())
    while not writing.done():
        await world.store.trim(TrimPolicy(keep_events=3))
        row, events = await world.row(job), await world.store.events(job.id)
        if events[-1].seq == row.version:
            assert world.store.chain.first_break(row, [e for e in events if e.seq > row.trimmed_seq]) is None
    await writing


@pytest.mark.parametrize("order", ["unit first", "parent first"])
async def test_units_that_are_named_with_their_parent_are_deleted_once(shop: Shop, order: str) -> None:
    world = shop.world
    parent = await world.submit()
    unit = await world.submit(parent=parent.id, unit="a")
    ids = [unit.id, parent.id] if order == "unit first" else [parent.id, unit.id]

    answers = await world.store.delete([*ids, parent.id], actor="ann", reason="tidy")

    assert answers == ["deleted", "deleted" if order == "unit first" else "missing", "missing"]
    assert [event.flag for event in await world.store.events(parent.id)] == ["tombstone"]
    assert len(await world.store.events(unit.id)) == (1 if order == "unit first" else 0)


async def test_a_parent_is_deleted_while_its_units_end_and_nobody_waits_for_the_other(shop: Shop) -> None:
    world = shop.world
    for _ in range(15):
        parent = await world.submit(queue="parents")
        units = [await world.running(parent=parent.id, unit=str(n)) for n in range(4)]
        ends = [world.change(unit, "succeeded", holder="s1") for unit in units]
        async with asyncio.timeout(SOON_S):
            *_, [deleted] = await asyncio.gather(
                *(world.store.apply([end]) for end in ends),
                world.store.delete([parent.id], actor="ann", reason="tidy"),
            )
        assert deleted in ("deleted", "held")


async def test_who_waited_for_what_is_deleted_hears_of_it(shop: Shop) -> None:
    world = shop.world
    first = await world.submit()
    waits = await world.submit(after=[first])
    await world.store.delete([first.id], actor="ann", reason="tidy")
    assert (await world.row(waits)).status == "skipped"


async def test_a_deletion_that_waits_for_a_row_holds_no_key(world: World, postgres_url: str) -> None:
    """Others take rows first and keys then; a circle of them would be a deadlock."""
    await world.store.set_limit("k", 1)
    job = await world.submit(concurrency_key="k")
    waiter = await world.submit(after=[job])
    schema = postgres(world)._address.schema
    key = f"hashtextextended('k', '{schema}.limits'::regclass::oid::bigint)"
    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute(f"SELECT FROM {schema}.jobs WHERE id = %s FOR UPDATE", (waiter.id,))
        deleting = asyncio.create_task(world.store.delete([job.id], actor="ann", reason=""))

        async def it_waits() -> bool:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
            return ask(postgres_url, sql, f'%"{schema}"%') == [(1,)]

        await until(it_waits)
        assert ask(postgres_url, f"SELECT pg_try_advisory_xact_lock({key})") == [(True,)]
    assert await deleting == ["deleted"]
