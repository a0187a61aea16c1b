"""Schedules and their ticks: each once."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.errors import KeyConflict
from mainstay.model import Schedule
from tests.conformance.world import World


async def test_a_schedule_is_stored_replaced_and_dropped(world: World) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b"1"))
    await world.store.put_schedule(Schedule(name="hourly", spec=b"2", paused=True))
    await world.store.put_schedule(Schedule(name="nightly", spec=b"3"))
    found = sorted(await world.store.schedules(), key=lambda schedule: schedule.name)
    assert found == [Schedule(name="hourly", spec=b"2", paused=True), Schedule(name="nightly", spec=b"3")]
    assert await world.store.drop_schedule("hourly") is True
    assert await world.store.drop_schedule("hourly") is False
    assert [schedule.name for schedule in await world.store.schedules()] == ["nightly"]


async def test_a_paused_schedule_stays_paused_when_it_is_stored_again(world: World) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b"1"))
    assert await world.store.pause_schedule("nightly", paused=True) is True
    await world.store.put_schedule(Schedule(name="nightly", spec=b"2"))
    assert await world.store.schedules() == [Schedule(name="nightly", spec=b"2", paused=True)]
    assert await world.store.pause_schedule("nightly", paused=False) is True
    assert await world.store.schedules() == [Schedule(name="nightly", spec=b"2")]
    assert await world.store.pause_schedule("hourly", paused=True) is False


async def test_a_dropped_schedule_forgets_its_ticks(world: World) -> None:
    for _ in range(2):
        await world.store.put_schedule(Schedule(name="nightly", spec=b""))
        assert await world.store.tick("nightly", 1_000, []) == []
        await world.store.drop_schedule("nightly")


async def test_a_tick_inserts_its_jobs_and_is_remembered(world: World) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b""))
    job = world.new()

    made = await world.store.tick("nightly", 1_000, [job])

    assert [one.created for one in made or []] == [True]
    assert await world.row(job.job.id) == job.job
    assert (await world.store.schedules())[0].last_tick_ms == 1_000


async def test_the_same_tick_is_taken_once(world: World) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b""))
    await world.store.tick("nightly", 1_000, [world.new()])
    before = await world.dump()
    assert await world.store.tick("nightly", 1_000, [world.new()]) is None
    assert await world.dump() == before


async def test_of_concurrent_ticks_one_inserts(world: World) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b""))
    answers = await asyncio.gather(*(world.store.tick("nightly", 1_000, [world.new()]) for _ in range(8)))
    assert sum(answer is not None for answer in answers) == 1
    assert len((await world.dump())["rows"]) == 1


async def test_other_times_and_other_schedules_are_other_ticks(world: World) -> None:
    for name in ("nightly", "hourly"):
        await world.store.put_schedule(Schedule(name=name, spec=b""))
    for name, at_ms in (("nightly", 1_000), ("nightly", 2_000), ("hourly", 1_000)):
        assert await world.store.tick(name, at_ms, [world.new()]) is not None


async def test_a_catch_up_does_not_turn_the_last_tick_back(world: World) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b""))
    await world.store.tick("nightly", 2_000, [])
    await world.store.tick("nightly", 1_000, [])
    assert (await world.store.schedules())[0].last_tick_ms == 2_000


async def test_replacing_a_schedule_keeps_its_last_tick_unless_the_new_one_is_later(world: World) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b""))
    await world.store.tick("nightly", 2_000, [])
    for given, kept in ((None, 2_000), (1_000, 2_000), (3_000, 3_000)):
        await world.store.put_schedule(Schedule(name="nightly", spec=b"new", last_tick_ms=given))
        assert (await world.store.schedules())[0].last_tick_ms == kept


async def test_a_tick_whose_jobs_are_refused_can_be_tried_again(world: World) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b""))
    await world.submit(key="k")
    before = await world.dump()
    with pytest.raises(KeyConflict):
        await world.store.tick("nightly", 1_000, [world.new(), world.new(key="k", content=b"other")])
    assert await world.dump() == before
    assert await world.store.tick("nightly", 1_000, [world.new()]) is not None


async def test_a_leaders_second_tick_of_the_same_time_makes_nothing(world: World) -> None:
    await world.open("s1")
    lead = await world.store.lead("scheduler", "s1", 30)
    await world.store.put_schedule(Schedule(name="nightly", spec=b""))
    assert await world.store.tick("nightly", 1_000, [world.new()], lead=lead) is not None
    before = await world.dump()

    assert await world.store.tick("nightly", 1_000, [world.new()], lead=lead) is None

    assert await world.dump() == before
