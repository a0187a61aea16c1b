"""Concurrency limits per key: never exceeded, never stranded."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.lifecycle import Move
from mainstay.model import Lane, QueueSettings
from tests.conformance.world import World


async def test_a_limit_is_counted_over_the_batch_itself(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 2)
    keyed = [await world.submit(concurrency_key="k") for _ in range(4)]
    free = await world.submit()

    claimed = await world.claim(n=10)

    assert [job.id for job in claimed] == [keyed[0].id, keyed[1].id, free.id]
    assert [(await world.row(job)).lane for job in keyed[2:]] == [Lane.BLOCKED, Lane.BLOCKED]
    assert await world.story(keyed[2]) == ["pending"], "waiting for a slot is no move"


async def test_concurrent_claims_do_not_exceed_a_limit(world: World) -> None:
    sessions = [f"s{n}" for n in range(6)]
    await world.open(*sessions)
    await world.store.set_limit("k", 3)
    await world.store.insert([world.new(concurrency_key="k") for _ in range(20)])
    batches = await asyncio.gather(*(world.claim(session, n=2) for session in sessions))
    assert sum(map(len, batches)) == 3


async def test_a_slot_that_is_freed_goes_to_the_best_blocked_row(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    low = await world.submit(concurrency_key="k", priority=1)
    [held] = await world.claim()
    assert held.id == low.id
    late, soon = [await world.submit(concurrency_key="k", priority=p) for p in (0, 5)]
    assert await world.claim(n=5) == []

    await world.move(held, "succeeded", holder="s1")

    assert [job.id for job in await world.claim(n=5)] == [soon.id]
    assert (await world.row(late)).lane == Lane.BLOCKED


async def test_of_blocked_rows_of_one_rank_the_first_to_come_gets_the_slot(world: World) -> None:
    """However often each was let through and had to go back again."""
    await world.open("s1")
    await world.store.set_limit("k", 1)
    held = await world.running(concurrency_key="k")
    first, second = [await world.submit(concurrency_key="k") for _ in range(2)]
    assert await world.claim(n=5) == []
    await world.move(held, "succeeded", holder="s1")  # so the first is let through,
    held = await world.running(concurrency_key="k", priority=5)  # but another one is faster,
    assert await world.claim(n=5) == []  # and it goes back, behind the second wherever order is that of writing
    assert [(await world.row(job)).lane for job in (first, second)] == [Lane.BLOCKED, Lane.BLOCKED]

    await world.move(held, "succeeded", holder="s1")

    assert [job.id for job in await world.claim(n=5)] == [first.id]


@pytest.mark.parametrize(
    "ending", [("succeeded",), ("failed",), ("timed_out", "quarantined"), ("cancelling", "cancelled")]
)
async def test_every_way_of_letting_go_frees_the_slot(world: World, ending: tuple[str, ...]) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    first, second = [await world.submit(concurrency_key="k") for _ in range(2)]
    [held] = await world.claim(n=5)
    assert held.id == first.id
    await world.move(held, *ending)
    assert [job.id for job in await world.claim(n=5)] == [second.id]


async def test_a_job_that_is_asked_to_stop_keeps_its_slot_until_it_has(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    await world.store.insert([world.new(concurrency_key="k") for _ in range(2)])
    [held] = await world.claim(n=5)
    await world.move(held, "cancelling")
    assert await world.claim(n=5) == []


async def test_slots_of_a_dead_session_are_freed_by_reaping(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 2)
    jobs = [await world.submit(concurrency_key="k") for _ in range(5)]
    await world.claim("s1", n=5)
    world.clock.advance(9)
    await world.open("s2")
    assert await world.claim("s2", n=5) == [], "not before the claims are reaped"

    await world.reap(to=["timed_out", "quarantined"])

    assert [job.id for job in await world.claim("s2", n=5)] == [job.id for job in jobs[2:4]]


async def test_all_slots_freed_by_one_batch_are_used(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 3)
    await world.store.insert([world.new(concurrency_key="k") for _ in range(9)])
    held = await world.claim(n=9)
    await world.store.apply([world.change(job, "succeeded", holder="s1") for job in held])
    assert len(await world.claim(n=9)) == 3


async def test_a_paused_queue_does_not_strand_a_key(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    [held] = [await world.running(concurrency_key="k")]
    paused = await world.submit(queue="a", concurrency_key="k", priority=50)
    other = await world.submit(queue="b", concurrency_key="k")
    assert await world.claim(n=5, queues=["a", "b"]) == []
    await world.store.set_queue(QueueSettings(name="a", paused=True))

    await world.move(held, "succeeded", holder="s1")

    [taken] = await world.claim(n=5, queues=["a", "b"])
    assert taken.id == other.id
    await world.store.set_queue(QueueSettings(name="a"))
    assert await world.claim(n=5, queues=["a", "b"]) == []
    await world.move(taken, "succeeded", holder="s1")
    assert [job.id for job in await world.claim(n=5, queues=["a", "b"])] == [paused.id]


async def test_a_row_let_through_that_is_cancelled_passes_its_turn_on(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    _, second, third = [await world.submit(concurrency_key="k") for _ in range(3)]
    [held] = await world.claim(n=5)
    seen_blocked = await world.row(second)
    assert seen_blocked.lane == Lane.BLOCKED
    await world.move(held, "succeeded", holder="s1")

    # cancelled from a row that was read before it was let through: its version is the same
    assert (await world.move(seen_blocked, "cancelled")).outcome == "applied"

    assert [job.id for job in await world.claim(n=5)] == [third.id]


async def test_a_row_let_through_that_is_put_off_passes_its_turn_on(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    _, second, third = [await world.submit(concurrency_key="k") for _ in range(3)]
    [held] = await world.claim(n=5)
    await world.move(held, "succeeded", holder="s1")
    later = Move(to="scheduled", fields={"due_ms": world.clock.now_ms() + 60_000})
    await world.move(await world.row(second), later)
    assert [job.id for job in await world.claim(n=5)] == [third.id]


async def test_a_row_let_through_that_is_deleted_passes_its_turn_on(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    _, second, third = [await world.submit(concurrency_key="k") for _ in range(3)]
    [held] = await world.claim(n=5)
    await world.move(held, "succeeded", holder="s1")
    assert await world.store.delete([second.id], actor="ann", reason="not needed") == ["deleted"]
    assert [job.id for job in await world.claim(n=5)] == [third.id]


async def test_a_blocked_job_can_be_cancelled(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    _, second = [await world.submit(concurrency_key="k") for _ in range(2)]
    [held] = await world.claim(n=5)
    await world.move(await world.row(second), "cancelled")
    await world.move(held, "succeeded", holder="s1")
    assert await world.claim(n=5) == []


async def test_raising_a_limit_lets_blocked_rows_through(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    await world.store.insert([world.new(concurrency_key="k") for _ in range(6)])
    await world.claim(n=6)
    await world.store.set_limit("k", 4)
    assert len(await world.claim(n=6)) == 3
    assert await world.store.limits() == {"k": 4}


async def test_lifting_a_limit_lets_all_through(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 0)
    await world.store.insert([world.new(concurrency_key="k") for _ in range(6)])
    assert await world.claim(n=6) == []
    await world.store.set_limit("k", None)
    assert len(await world.claim(n=10)) == 6
    assert await world.store.limits() == {}


async def test_lowering_a_limit_takes_nothing_away_but_holds_back_until_it_fits(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 3)
    await world.store.insert([world.new(concurrency_key="k") for _ in range(5)])
    held = await world.claim(n=5)
    await world.store.set_limit("k", 1)
    for job in held[:2]:
        await world.move(job, "succeeded", holder="s1")
        assert await world.claim(n=5) == []
    await world.move(held[2], "succeeded", holder="s1")
    assert len(await world.claim(n=5)) == 1


async def test_keys_do_not_share_slots(world: World) -> None:
    await world.open("s1")
    for key in ("a", "b"):
        await world.store.set_limit(key, 1)
    await world.store.insert([world.new(concurrency_key=key) for key in "aabbc"])
    assert sorted(job.concurrency_key or "" for job in await world.claim(n=9)) == ["a", "b", "c"]


async def test_deleting_a_job_passes_on_the_turn_of_its_units(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    parent = await world.submit(queue="elsewhere")
    unit = await world.submit(parent=parent.id, unit="u1", concurrency_key="k")
    other = await world.submit(concurrency_key="k")
    [held] = await world.claim(n=1)
    assert held.id == unit.id
    assert await world.claim(n=5) == []
    await world.move(held, "pending", holder="s1")

    assert await world.store.delete([parent.id], actor="ann", reason="not needed") == ["deleted"]

    assert [job.id for job in await world.claim(n=5)] == [other.id]
