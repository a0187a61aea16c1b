"""How many units of a job stand in each status: always what the rows say."""

from __future__ import annotations

from collections import Counter

from mainstay.model import Job, driver_id
from mainstay.stores import Query, TrimPolicy
from tests.conformance.world import World


async def family(world: World, n: int) -> Job:
    """A job with units that wait."""
    await world.open("s1")
    parent = await world.running(queue="parents")
    await world.store.insert([world.new(queue="units", parent=parent.id, unit=str(i)) for i in range(n)])
    return parent


async def counts(world: World, parent: Job) -> dict[str, int]:
    """As told, once it was seen that the rows come to the same."""
    told = await world.store.unit_counts(parent.id)
    rows = (await world.store.find(Query(parent=parent.id), limit=1000)).jobs
    assert told == Counter(row.status for row in rows)
    return told


async def test_a_job_without_units_and_one_that_is_not_there_have_none(world: World) -> None:
    job = await world.submit()
    assert await world.store.unit_counts(job.id) == {}
    assert await world.store.unit_counts(world.new().job.id) == {}
    assert await world.store.unit_counts("nobody") == {}


async def test_counts_follow_inserts_claims_and_ends(world: World) -> None:
    parent = await family(world, 5)
    assert await counts(world, parent) == {"pending": 5}

    units = await world.claim(n=3, queues=["units"])
    assert await counts(world, parent) == {"pending": 2, "running": 3}

    await world.move(units[0], "succeeded", holder="s1")
    await world.move(units[1], "failed", holder="s1")
    await world.move(units[2], "failed", "pending", holder="s1")
    assert await counts(world, parent) == {"pending": 3, "succeeded": 1, "failed": 1}

    await world.move(await world.row(units[1]), "pending")
    await world.move(await world.row(units[2]), "skipped")
    assert await counts(world, parent) == {"pending": 3, "succeeded": 1, "skipped": 1}


async def test_many_changes_in_one_call_are_all_counted(world: World) -> None:
    parent = await family(world, 20)
    units = await world.claim(n=20, queues=["units"])
    changes = [
        world.change(unit, "succeeded" if n % 4 else "cancelled", holder="s1" if n % 4 else None)
        for n, unit in enumerate(units)
    ]
    assert {answer.outcome for answer in await world.store.apply(changes)} == {"applied"}

    assert await counts(world, parent) == {"succeeded": 15, "cancelled": 5}


async def test_what_is_not_written_is_not_counted(world: World) -> None:
    parent = await family(world, 1)
    [unit] = await world.claim(queues=["units"])
    done = world.change(unit, "succeeded", holder="s1")
    await world.store.apply([done])
    assert [answer.outcome for answer in await world.store.apply([done])] == ["already_applied"]
    late = await world.move(unit, "failed", holder="s1")
    assert late.outcome != "applied"

    assert await counts(world, parent) == {"succeeded": 1}


async def test_claims_that_are_given_back_or_taken_away_are_counted(world: World) -> None:
    parent = await family(world, 2)
    units = await world.claim(n=2, queues=["units"])
    await world.move(units[0], "pending", holder="s1")
    assert await counts(world, parent) == {"pending": 1, "running": 1}
    await world.store.close_session("s1")
    overdue = {late.job.id for late in await world.store.overdue()}
    assert units[1].id in overdue
    await world.move(units[1], "pending", actor="sweeper")

    assert await counts(world, parent) == {"pending": 2}


async def test_units_of_other_jobs_and_jobs_themselves_do_not_count(world: World) -> None:
    parent, other = await family(world, 2), await world.submit(queue="parents")
    await world.submit(queue="units", parent=other.id, unit="x")
    await world.submit(queue="units")

    assert await counts(world, parent) == {"pending": 2}
    assert await counts(world, other) == {"pending": 1}
    assert (await world.store.stats()).queues["units"].counts == {"pending": 1}


async def test_drivers_are_not_counted_whatever_their_status(world: World) -> None:
    parent = await family(world, 2)
    drivers = [driver_id(parent.id, parent.token), driver_id(parent.id, parent.token + 1)]
    await world.store.insert([world.new(queue="drivers", id=drivers[0], parent=parent.id, unit="driver 1")])
    assert await world.store.unit_counts(parent.id) == {"pending": 2}

    [driver] = await world.claim(queues=["drivers"])
    assert await world.store.unit_counts(parent.id) == {"pending": 2}
    await world.move(driver, "succeeded", holder="s1")
    assert await world.store.unit_counts(parent.id) == {"pending": 2}

    # given back, and claimed again: another driver, and the first one is still stored
    await world.move(await world.row(parent), "pending", holder="s1")
    [again] = await world.claim(queues=["parents"])
    assert again.token == parent.token + 1
    await world.store.insert([world.new(queue="drivers", id=drivers[1], parent=parent.id, unit="driver 2")])
    assert await world.store.unit_counts(parent.id) == {"pending": 2}
    assert {row.id for row in (await world.store.find(Query(parent=parent.id))).jobs} >= set(drivers)


async def test_drivers_of_a_job_that_was_claimed_many_times_are_not_counted(world: World) -> None:
    parent = await family(world, 1)
    for _ in range(12):
        await world.move(await world.row(parent), "pending", holder="s1")
        [parent] = await world.claim(queues=["parents"])
    driver = driver_id(parent.id, parent.token)
    await world.store.insert([world.new(queue="drivers", id=driver, parent=parent.id, unit="driver")])

    assert await world.store.unit_counts(parent.id) == {"pending": 1}


async def test_units_that_another_one_brings_are_counted(world: World) -> None:
    parent = await family(world, 1)
    [unit] = await world.claim(queues=["units"])
    more = tuple(world.new(queue="units", parent=parent.id, unit=f"more{n}") for n in range(2))
    await world.move(unit, "succeeded", holder="s1", spawn=more)

    assert await counts(world, parent) == {"succeeded": 1, "pending": 2}


async def test_units_whose_insert_is_refused_are_not_counted(world: World) -> None:
    parent = await family(world, 1)
    before = await world.submit(queue="units", parent=parent.id, unit="keyed", key="once")
    [again] = await world.store.insert([world.new(queue="units", parent=parent.id, unit="keyed", key="once")])

    assert (again.id, again.created) == (before.id, False)
    assert await counts(world, parent) == {"pending": 2}


async def test_a_job_that_is_deleted_leaves_no_counts(world: World) -> None:
    parent = await family(world, 3)
    for unit in await world.claim(n=3, queues=["units"]):
        await world.move(unit, "succeeded", holder="s1")
    await world.move(await world.row(parent), "succeeded", holder="s1")
    assert await world.store.delete([parent.id], actor="ann", reason="old") == ["deleted"]

    assert await counts(world, parent) == {}


async def test_a_job_that_is_trimmed_leaves_no_counts_and_the_others_stay(world: World) -> None:
    parent = await family(world, 3)
    for unit in await world.claim(n=3, queues=["units"]):
        await world.move(unit, "succeeded", holder="s1")
    await world.move(await world.row(parent), "succeeded", holder="s1")
    other = await world.submit(queue="parents")
    await world.submit(queue="units", parent=other.id, unit="x")
    world.clock.advance(10)
    policy = TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms()})
    while (await world.store.trim(policy)).more:
        pass

    assert await counts(world, parent) == {}
    assert await counts(world, other) == {"pending": 1}
