"""Waking: subscribe, read, wait; nothing between the three is lost.

The long timeouts are never waited for: a test that has to is failing.
"""

from __future__ import annotations

import asyncio

from mainstay.lifecycle import Move
from mainstay.model import Options, QueueSettings
from tests.conformance.world import World

LONG_S = 60.0
#: how long to be sure that nobody else is woken
QUIET_S = 0.05


async def test_a_new_job_wakes_a_subscriber_of_its_queue(world: World) -> None:
    async with world.store.wake(["queue:default"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await asyncio.sleep(0)
        await world.submit()
        assert await waiting is True


async def test_a_wake_between_subscribing_and_waiting_is_not_lost(world: World) -> None:
    async with world.store.wake(["queue:default"]) as wake:
        await world.submit()
        assert await wake.wait(LONG_S) is True


async def test_a_wait_that_is_cancelled_or_over_takes_no_wake_with_it(world: World) -> None:
    job = await world.submit()
    async with world.store.wake([f"job:{job.id}"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await asyncio.wait([waiting], timeout=QUIET_S)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await wake.wait(QUIET_S) is False

        await world.move(job, "cancelled")

        assert await wake.wait(LONG_S) is True


async def test_nothing_wakes_a_subscriber_of_something_else(world: World) -> None:
    async with world.store.wake(["queue:other", "job:nobody", "session:s9"]) as wake:
        await world.submit()
        assert await wake.wait(QUIET_S) is False


async def test_a_delayed_job_wakes_one_subscriber_to_learn_when_it_is_due(world: World) -> None:
    wakes = [world.store.wake(["queue:default"]) for _ in range(3)]
    waiting = [asyncio.create_task(wake.wait(LONG_S)) for wake in wakes]
    await asyncio.sleep(0)

    await world.store.insert([world.new(delay_s=wait_s) for wait_s in (3, 2, 1)])

    done, idle = await asyncio.wait(waiting, timeout=QUIET_S)
    assert [task.result() for task in done] == [True]
    assert await world.store.due(["default"]) == world.clock.now_ms() + 1000
    for task in idle:
        task.cancel()
    await asyncio.wait(idle)
    for wake in wakes:
        await wake.close()


async def test_a_job_due_later_than_another_wakes_nobody(world: World) -> None:
    await world.submit(delay_s=60)
    async with world.store.wake(["queue:default"]) as wake:
        await world.submit(delay_s=61)
        assert await wake.wait(QUIET_S) is False
        await world.submit(delay_s=59)
        assert await wake.wait(LONG_S) is True


async def test_a_job_whose_time_has_passed_does_not_hide_one_that_comes(world: World) -> None:
    await world.submit(delay_s=1)
    world.clock.advance(2)
    async with world.store.wake(["queue:default"]) as wake:
        await world.submit(delay_s=1)
        assert await wake.wait(LONG_S) is True


async def test_a_retry_after_a_short_wait_wakes_its_queue(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    due = {"due_ms": world.clock.now_ms() + 100}
    async with world.store.wake(["queue:own"]) as wake:
        await world.move(job, "failed", Move(to="scheduled", fields=due), holder="s1")
        assert await wake.wait(LONG_S) is True


async def test_a_job_that_waits_for_others_wakes_nobody_until_its_time_is_known(world: World) -> None:
    await world.open("s1")
    first = await world.running()
    async with world.store.wake(["queue:default"]) as wake:
        later = Options(after_when="succeeded", after_failed="skip", not_before_ms=world.clock.now_ms() + 500)
        await world.submit(after=[first], options=later)
        assert await wake.wait(QUIET_S) is False
        await world.move(first, "succeeded", holder="s1")
        assert await wake.wait(LONG_S) is True


async def test_a_released_job_wakes_its_queue(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    async with world.store.wake(["queue:own"]) as wake:
        await world.move(job, "pending", holder="s1")
        assert await wake.wait(LONG_S) is True


async def test_a_queue_wakes_no_more_subscribers_than_rows_got_ready(world: World) -> None:
    wakes = [world.store.wake(["queue:default"]) for _ in range(5)]
    waiting = [asyncio.create_task(wake.wait(LONG_S)) for wake in wakes]
    await asyncio.sleep(0)
    await world.store.insert([world.new(), world.new()])

    done, idle = await asyncio.wait(waiting, timeout=QUIET_S)

    assert [task.result() for task in done] == [True, True]
    await world.store.insert([world.new() for _ in range(3)])
    assert all(await asyncio.gather(*idle))
    for wake in wakes:
        await wake.close()


async def test_settling_wakes_everybody_who_waits_for_the_job(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    wakes = [world.store.wake([f"job:{job.id}"]) for _ in range(3)]
    await world.move(job, Move(to="running", reason="a remark", flag="note"))
    assert await wakes[0].wait(QUIET_S) is False

    await world.move(await world.row(job), "succeeded", holder="s1")

    assert await asyncio.gather(*(wake.wait(LONG_S) for wake in wakes)) == [True] * 3
    for wake in wakes:
        await wake.close()


async def test_a_refused_change_wakes_nobody(world: World) -> None:
    await world.open("s1")
    ghost = await world.running()
    await world.move(ghost, "failed", "scheduled")
    async with world.store.wake([f"job:{ghost.id}", "queue:own"]) as wake:
        assert (await world.move(ghost, "succeeded", holder="s1")).outcome == "stale"
        assert await wake.wait(QUIET_S) is False


async def test_a_cancel_wakes_the_session_that_holds_the_job(world: World) -> None:
    await world.open("s1", "s2")
    job = await world.running("s1")
    async with world.store.wake(["session:s1"]) as mine, world.store.wake(["session:s2"]) as other:
        await world.move(job, "cancelling")
        assert await mine.wait(LONG_S) is True
        assert await other.wait(QUIET_S) is False


async def test_a_freed_slot_wakes_the_queue_of_the_row_that_gets_it(world: World) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    held = await world.running(concurrency_key="k")
    await world.submit(queue="b", concurrency_key="k")
    assert await world.claim(queues=["b"]) == []
    async with world.store.wake(["queue:b"]) as wake:
        await world.move(held, "succeeded", holder="s1")
        assert await wake.wait(LONG_S) is True


async def test_resuming_a_queue_wakes_it(world: World) -> None:
    await world.store.set_queue(QueueSettings(name="default", paused=True))
    await world.submit()
    async with world.store.wake(["queue:default"]) as wake:
        await world.store.set_queue(QueueSettings(name="default"))
        assert await wake.wait(LONG_S) is True


async def test_resuming_a_queue_wakes_it_for_a_job_that_fell_due_meanwhile(world: World) -> None:
    await world.open("s1")
    job = await world.submit(delay_s=10)
    await world.store.set_queue(QueueSettings(name="default", paused=True))
    world.clock.advance(20)
    async with world.store.wake(["queue:default"]) as wake:
        await world.store.set_queue(QueueSettings(name="default"))
        assert await wake.wait(LONG_S) is True
        assert [found.id for found in await world.claim()] == [job.id]


async def test_a_subscriber_is_woken_again_after_it_was_woken(world: World) -> None:
    async with world.store.wake(["queue:default"]) as wake:
        for _ in range(3):
            await world.submit()
            assert await wake.wait(LONG_S) is True


async def test_the_last_unit_wakes_who_waits_for_its_parent(world: World) -> None:
    await world.open("s1")
    parent = await world.running()
    unit = await world.running(parent=parent.id, unit="a", queue="units")
    async with world.store.wake([f"job:{parent.id}"]) as wake:
        await world.move(unit, "succeeded", holder="s1", on_last=Move(to="succeeded"))
        assert await wake.wait(LONG_S) is True
