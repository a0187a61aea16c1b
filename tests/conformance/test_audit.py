"""Auditing and mending."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.errors import StoreClosed
from mainstay.lifecycle import Move, apply
from mainstay.model import Options
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


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("submit_changed", {"name": "demo.other"}),
        ("submit_changed", {"queue": "elsewhere"}),
        ("submit_changed", {"options": Options(run_timeout_s=5.0)}),
        ("submit_changed", {"unique_key": None}),
        ("submit_changed", {"concurrency_key": "k"}),
        ("submit_changed", {"key": None}),
        ("submit_changed", {"priority": 7}),
        ("created_time", {"created_ms": 5}),
        ("due_changed", {"due_ms": 2_646_684_800_000}),
    ],
)
async def test_a_row_that_is_not_what_was_submitted_is_found(world: World, code: str, changed: dict[str, Any]) -> None:
    options = Options(run_timeout_s=30, tags=("a",), metadata={"z": "1", "a": "2"})
    await world.store.insert([world.new(options=options, unique_key="u", key="k", priority=3)])
    [found] = await world.store.audit()

    assert world.seen(found) == []
    assert code in [each.code for each in world.seen(found, **changed)]


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("result_changed", {"result": b"\x2a"}),
        ("result_changed", {"result": None}),
        ("bad_result", {"result": b"\xc1"}),
        ("settled_time", {"settled_ms": 5}),
        ("settled_time", {"expires_ms": 5}),
    ],
)
async def test_a_row_that_is_not_what_was_answered_is_found(world: World, code: str, changed: dict[str, Any]) -> None:
    await world.open("s1")
    job = await world.running()
    done = Move(to="succeeded", fields={"result": b"\x01", "starts": 1})
    assert (await world.move(job, done, holder="s1")).outcome == "applied"
    [found] = await world.store.audit()

    assert world.seen(found) == []
    assert code in [each.code for each in world.seen(found, **changed)]


async def test_a_priority_that_was_changed_by_a_note_is_what_the_trail_says(world: World) -> None:
    job = await world.submit()
    note = Move(to="pending", reason="priority changed from 0 to 5", fields={"priority": 5}, flag="note")
    await world.move(job, note)
    [found] = await world.store.audit()

    assert "submit_changed" not in [each.code for each in world.seen(found)]
    [wrong] = [each for each in world.seen(found, priority=0) if each.code == "submit_changed"]
    assert wrong.fix["priority"] == 5
