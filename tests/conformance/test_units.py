"""Units: the last one is never missed."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.lifecycle import Move
from mainstay.model import Job, Lane
from tests.conformance.world import World

FINISH = Move(to="finalizing", reason="all units are settled")


async def family(world: World, n: int) -> tuple[Job, list[Job]]:
    await world.open("s1")
    parent = await world.running(queue="parents")
    await world.store.insert([world.new(queue="units", parent=parent.id, unit=str(i)) for i in range(n)])
    units = await world.claim(n=n, queues=["units"])
    assert len(units) == n
    return parent, units


async def test_the_last_unit_moves_its_parent_in_the_same_step(world: World) -> None:
    parent, units = await family(world, 3)

    for unit in units[:2]:
        answer = await world.move(unit, "succeeded", holder="s1", on_last=FINISH)
        assert (answer.outcome, answer.last) == ("applied", False)
        assert await world.row(parent) == parent, "a unit that is not the last does not touch its job"
    answer = await world.move(units[2], "failed", holder="s1", on_last=FINISH)

    assert (answer.outcome, answer.last) == ("applied", True)
    row = await world.row(parent)
    assert (row.status, row.reason, row.session) == ("finalizing", "all units are settled", "s1")
    assert await world.story(parent) == ["pending", "running", "finalizing"]


async def test_the_last_two_units_in_one_batch_move_the_parent_once(world: World) -> None:
    parent, units = await family(world, 2)
    answers = await world.store.apply([world.change(unit, "succeeded", holder="s1", on_last=FINISH) for unit in units])
    assert [answer.outcome for answer in answers] == ["applied", "applied"]
    assert sum(answer.last for answer in answers) == 1
    assert await world.story(parent) == ["pending", "running", "finalizing"]


async def test_the_last_units_settling_at_once_move_the_parent_once(world: World) -> None:
    parent, units = await family(world, 6)
    answers = await asyncio.gather(*(world.move(unit, "succeeded", holder="s1", on_last=FINISH) for unit in units))
    assert sum(answer.last for answer in answers) == 1
    assert await world.story(parent) == ["pending", "running", "finalizing"]


async def test_a_lost_acknowledgement_of_the_last_unit_moves_nothing_twice(world: World) -> None:
    parent, [unit] = await family(world, 1)
    change = world.change(unit, "succeeded", holder="s1", on_last=FINISH)
    await world.store.apply([change])
    before = await world.dump()
    [again] = await world.store.apply([change])
    assert again.outcome == "already_applied"
    assert await world.dump() == before
    assert (await world.row(parent)).status == "finalizing"


async def test_the_move_is_made_from_the_parent_as_it_stands(world: World) -> None:
    parent, [unit] = await family(world, 1)
    change = world.change(unit, "succeeded", holder="s1", on_last=FINISH)
    await world.move(parent, Move(to="running", reason="a remark meanwhile", flag="note"))
    await world.store.apply([change])
    assert (await world.row(parent)).status == "finalizing"


@pytest.mark.parametrize("meanwhile", ["cancelling", "cancelled"])
async def test_a_parent_that_went_elsewhere_is_left_there_and_the_caller_hears_last(
    world: World, meanwhile: str
) -> None:
    parent, [unit] = await family(world, 1)
    await world.move(parent, meanwhile)
    before = await world.row(parent)

    answer = await world.move(unit, "succeeded", holder="s1", on_last=FINISH)

    assert (answer.outcome, answer.last) == ("applied", True)
    assert await world.row(parent) == before


async def test_a_unit_that_will_be_tried_again_is_not_settled(world: World) -> None:
    _, [unit] = await family(world, 1)
    later = Move(to="pending", fields={"due_ms": world.clock.now_ms() + 5_000})
    answer = await world.move(unit, "failed", later, holder="s1", on_last=FINISH)
    assert (answer.outcome, answer.last) == ("applied", False)


async def test_a_unit_waits_for_its_time_in_its_claimable_state_and_gets_ready_without_an_event(world: World) -> None:
    _, [unit] = await family(world, 1)
    later = Move(to="pending", fields={"due_ms": world.clock.now_ms() + 5_000})
    await world.move(unit, "failed", later, holder="s1")
    waiting = await world.row(unit)
    assert (waiting.status, waiting.lane) == ("pending", Lane.DUE)
    assert await world.store.due(["units"]) == world.clock.now_ms() + 5_000
    assert await world.claim(queues=["units"]) == []
    world.clock.advance(5)

    [again] = await world.claim(queues=["units"])

    assert (again.id, again.token) == (unit.id, 2)
    assert await world.story(unit) == ["pending", "running", "failed", "pending", "running"]


async def test_a_unit_spawned_by_the_last_one_keeps_the_parent_open(world: World) -> None:
    parent, [unit] = await family(world, 1)
    more = world.new(queue="units", parent=parent.id, unit="more")
    answer = await world.move(unit, "succeeded", holder="s1", on_last=FINISH, spawn=(more,))
    assert (answer.outcome, answer.last) == ("applied", False)
    assert (await world.row(parent)).status == "running"


async def test_a_remark_on_a_settled_unit_is_not_its_settling(world: World) -> None:
    parent, [unit] = await family(world, 1)
    await world.move(unit, "succeeded", holder="s1")
    remark = Move(to="succeeded", reason="checked again", flag="note")
    answer = await world.move(await world.row(unit), remark, on_last=FINISH)
    assert (answer.outcome, answer.last) == ("applied", False)
    assert (await world.row(parent)).status == "running"


async def test_units_of_other_jobs_do_not_count(world: World) -> None:
    parent, [unit] = await family(world, 1)
    stranger = await world.submit(queue="parents")
    await world.submit(queue="units", parent=stranger.id, unit="x")
    answer = await world.move(unit, "succeeded", holder="s1", on_last=FINISH)
    assert answer.last
    assert (await world.row(parent)).status == "finalizing"


async def test_a_last_unit_that_brings_one_whose_key_was_used_is_still_the_last(world: World) -> None:
    parent, [unit] = await family(world, 1)
    await world.submit(key="used")
    again = world.new(queue="units", parent=parent.id, unit="again", key="used")

    answer = await world.move(unit, "succeeded", holder="s1", spawn=(again,), on_last=FINISH)

    assert (answer.outcome, answer.last) == ("applied", True)
    assert await world.story(parent) == ["pending", "running", "finalizing"]


async def test_a_unit_that_brings_one_beside_one_whose_key_was_used_is_not_the_last(world: World) -> None:
    parent, [unit] = await family(world, 1)
    await world.submit(key="used")
    brought = [world.new(queue="units", parent=parent.id, unit=name, key=name) for name in ("used", "fresh")]

    answer = await world.move(unit, "succeeded", holder="s1", spawn=tuple(brought), on_last=FINISH)

    assert (answer.outcome, answer.last) == ("applied", False)
    assert await world.row(parent) == parent
