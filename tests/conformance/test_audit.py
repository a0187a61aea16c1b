"""Auditing and mending."""

from __future__ import annotations

import pytest

from mainstay.errors import StoreClosed
from mainstay.lifecycle import Move, apply
from mainstay.stores import TrimPolicy
from tests.conformance.adapters import Adapter
from tests.conformance.world import World


async def test_an_audit_walks_all_rows_by_id_with_their_events(world: World) -> None:
    await world.open("s1")
    jobs = [await world.submit() for _ in range(3)]
    unit = await world.submit(parent=jobs[0].id, unit="a")
    await world.claim()

    pages = [await world.store.audit(limit=3)]
    pages.append(await world.store.audit(after=pages[0][-1].job.id, limit=3))

    walked = [found for page in pages for found in page]
    assert [found.job.id for found in walked] == [*(job.id for job in jobs), unit.id]
    assert [event.to for event in walked[0].events] == ["pending", "running"]
    assert [found.job for found in walked] == [await world.row(found.job) for found in walked]
    assert all(not found.damaged for found in walked)
    assert await world.store.audit(after=unit.id) == []


async def test_an_audit_leaves_trimmed_events_out(world: World) -> None:
    job = await world.submit()
    for n in range(12):
        job = (await world.move(job, Move(to="pending", reason=f"remark {n}", flag="note"))).job or job
    await world.store.trim(TrimPolicy(keep_events=11))
    [found] = await world.store.audit()
    assert [event.seq for event in found.events] == list(range(3, 14))


async def test_a_sound_store_passes_its_own_check(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    await world.store.insert([world.new(concurrency_key="k", unique_key=str(n), key=str(n)) for n in range(4)])
    await world.claim(n=4)
    assert await world.store.check() == []
    assert await world.store.check(repair=True) == []


async def test_mending_writes_the_row_whole_with_its_events(world: World) -> None:
    job = await world.submit()
    [found] = await world.store.audit()
    repair = Move(to="quarantined", reason="looked wrong", flag="repair", fields={"priority": 3})
    moved = apply(found.job, repair, now_ms=world.clock.now_ms(), actor="check", chain=world.store.chain)

    assert await world.store.mend(found, moved.job, moved.events) is True

    assert await world.row(job) == moved.job
    assert [event.flag for event in await world.store.events(job.id)] == ["", "repair"]
    assert (await world.store.stats()).queues["default"].counts == {"quarantined": 1}


async def test_mending_is_refused_when_the_row_moved_since(world: World) -> None:
    job = await world.submit()
    [found] = await world.store.audit()
    repair = Move(to="quarantined", reason="looked wrong", flag="repair")
    moved = apply(found.job, repair, now_ms=world.clock.now_ms(), actor="check", chain=world.store.chain)
    await world.move(job, "cancelled")
    before = await world.dump()

    assert await world.store.mend(found, moved.job, moved.events) is False

    assert await world.dump() == before


async def test_a_closed_store_says_so_and_can_be_closed_again(
    adapter: Adapter, world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = await adapter.open(tmp_path_factory.mktemp("other"), world.clock)
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.get(["x"])
