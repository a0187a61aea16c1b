"""Statistics agree with the rows."""

from __future__ import annotations

from mainstay.stores import QueueStats
from tests.conformance.world import World


async def test_an_empty_store_has_empty_statistics(world: World) -> None:
    stats = await world.store.stats()
    assert (stats.at_ms, stats.queues, stats.rates) == (world.clock.now_ms(), {}, {})
    assert (stats.sessions, stats.aside, stats.findings) == (0, 0, ())


async def test_jobs_are_counted_per_queue_and_status_and_units_are_not(world: World) -> None:
    await world.open("s1", "s2")
    parent = await world.running()
    await world.submit(parent=parent.id, unit="a")
    done = await world.running()
    await world.move(done, "succeeded", holder="s1")
    await world.submit(queue="mail")
    await world.submit(queue="mail", delay_s=60)

    stats = await world.store.stats()

    assert stats.queues["own"].counts == {"running": 1, "succeeded": 1}
    assert stats.queues["mail"].counts == {"pending": 1, "scheduled": 1}
    assert stats.sessions == 2


async def test_counts_follow_moves_deletion_and_retention(world: World) -> None:
    job, other = await world.submit(), await world.submit()
    await world.move(job, "cancelled")
    assert (await world.store.stats()).queues["default"].counts == {"pending": 1, "cancelled": 1}
    await world.store.delete([other.id, job.id], actor="ann", reason="tidy")
    stats = await world.store.stats()
    assert stats.queues.get("default", QueueStats(counts={})).counts == {}


async def test_the_oldest_ready_job_is_told_by_its_due_time(world: World) -> None:
    await world.open("s1")
    first = await world.submit(priority=-50)
    world.clock.advance(5)
    await world.submit(priority=50)
    await world.submit(delay_s=60)
    assert (await world.store.stats()).queues["default"].oldest_ready_ms == first.due_ms
    await world.claim(n=5)
    assert (await world.store.stats()).queues["default"].oldest_ready_ms is None


async def test_the_oldest_ready_job_is_told_behind_many_that_go_before_it(world: World) -> None:
    await world.open("s1")
    old = await world.submit()
    low = await world.submit(priority=-50)
    world.clock.advance(3600)
    await world.store.insert([world.new(priority=100) for _ in range(250)])

    assert (await world.store.stats()).queues["default"].oldest_ready_ms == old.due_ms

    taken = await world.claim(n=251)
    assert old.id in {job.id for job in taken}
    assert (await world.store.stats()).queues["default"].oldest_ready_ms == low.due_ms
    await world.assert_sound()


async def test_rates_are_moves_per_minute_since_the_first_job(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    for _ in range(10):
        job = await world.running()
        await world.move(job, "succeeded", holder="s1")
        world.clock.advance(2)

    rates = (await world.store.stats()).rates

    assert (rates["pending"], rates["running"], rates["succeeded"]) == (30.0, 30.0, 30.0)
    assert rates.keys() == {"pending", "running", "succeeded"}
    world.clock.advance(360)
    assert not any((await world.store.stats()).rates.values())


async def test_what_comes_in_is_counted_apart_from_what_comes_back(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    for n in range(5):
        job = await world.running(queue=f"q{n}")
        await world.move(job, "pending", holder="s1")
    world.clock.advance(60)

    stats = await world.store.stats()

    assert (stats.submitted, stats.rates["pending"]) == (5.0, 10.0)
    world.clock.advance(360)
    assert (await world.store.stats()).submitted == 0


async def test_a_steady_rate_reads_as_that_rate_at_any_moment(world: World) -> None:
    step_s, told = 3, []
    for at in range(step_s, 420, step_s):
        await world.submit()
        world.clock.advance(step_s)
        if at >= 10:
            told.append((await world.store.stats()).submitted)

    assert all(19.5 <= rate <= 20.5 for rate in told), told


async def test_a_job_after_a_quiet_hour_counts_over_all_five_minutes(world: World) -> None:
    await world.submit()
    world.clock.advance(3600)
    await world.submit()
    world.clock.advance(1)

    assert 0.2 <= (await world.store.stats()).submitted <= 0.25


async def test_a_few_jobs_in_a_store_of_a_second_are_not_hundreds_a_minute(world: World) -> None:
    await world.submit()
    world.clock.advance(0.1)
    assert (await world.store.stats()).submitted == 6.0


async def test_dead_sessions_are_not_counted(world: World) -> None:
    await world.open("s1", "s2")
    await world.running("s1")
    world.clock.advance(6)
    await world.store.beat(["s2"])
    world.clock.advance(6)
    await world.store.overdue()
    assert (await world.store.stats()).sessions == 1
