"""Under READ COMMITTED no transaction sees what another has not committed: the last two members of a group, or the last
two units of a job, must not both believe that the other is still at work."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainstay.clock import SystemClock
from mainstay.lifecycle import Move
from mainstay.stores import JobStore, open_store
from tests import places
from tests.conformance.world import World

ROUNDS, AT_ONCE = 40, 50
SIDES = ("left", "right")


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[JobStore, JobStore]]:
    """The same place twice, on connections of their own."""
    url = places.place("postgresql", tmp_path)
    async with AsyncExitStack() as undo:
        left = await open_store(url)
        undo.push_async_callback(left.close)
        right = await open_store(url)
        undo.push_async_callback(right.close)
        yield left, right


def a_world(store: JobStore) -> World:
    return World(store, SystemClock())  # type: ignore[arg-type]


@pytest.mark.slow
async def test_thousands_of_pairs_that_end_at_once_on_two_connections_release_each_waiter_once(
    two: tuple[JobStore, JobStore],
) -> None:
    worlds = [a_world(store) for store in two]
    waiters: list[str] = []
    for world, side in zip(worlds, SIDES, strict=True):
        await world.open(side, lease_s=600)
    for _ in range(ROUNDS):
        batch = []
        for _ in range(AT_ONCE):
            pair = [worlds[0].new(queue=side) for side in SIDES]
            then = worlds[0].new(queue="then", after=[new.job for new in pair])
            batch += [*pair, then]
            waiters.append(then.job.id)
        await two[0].insert(batch)
        held = [await store.claim([side], side, AT_ONCE) for store, side in zip(two, SIDES, strict=True)]
        both = [
            [world.change(job, "succeeded", holder=side) for job in jobs]
            for world, side, jobs in zip(worlds, SIDES, held, strict=True)
        ]

        answers = await asyncio.gather(*(store.apply(changes) for store, changes in zip(two, both, strict=True)))

        assert {answer.outcome for side in answers for answer in side} == {"applied"}

    stories = Counter([tuple(event.to for event in await two[0].events(job_id)) for job_id in waiters])
    assert stories == {("scheduled", "pending"): len(waiters)}
    assert await two[0].check() == []


@pytest.mark.slow
async def test_of_the_last_two_units_that_end_at_once_exactly_one_moves_the_job_on(
    two: tuple[JobStore, JobStore],
) -> None:
    worlds = [a_world(store) for store in two]
    for world, side in zip(worlds, SIDES, strict=True):
        await world.open(side, lease_s=600)
    parents: list[str] = []
    last = 0
    for _ in range(ROUNDS):
        batch = []
        for _ in range(AT_ONCE):
            parent = worlds[0].new(queue="parents")
            batch += [parent, *(worlds[0].new(queue=side, parent=parent.job.id, unit=side) for side in SIDES)]
            parents.append(parent.job.id)
        await two[0].insert(batch)
        await two[0].claim(["parents"], "left", AT_ONCE)
        held = [await store.claim([side], side, AT_ONCE) for store, side in zip(two, SIDES, strict=True)]
        on_last = Move(to="finalizing", reason="all units are done")
        both = [
            [world.change(job, "succeeded", holder=side, on_last=on_last) for job in jobs]
            for world, side, jobs in zip(worlds, SIDES, held, strict=True)
        ]

        answers = await asyncio.gather(*(store.apply(changes) for store, changes in zip(two, both, strict=True)))

        assert {answer.outcome for side in answers for answer in side} == {"applied"}
        last += sum(answer.last for side in answers for answer in side)

    assert last == len(parents)
    stories = Counter([tuple(event.to for event in await two[0].events(job_id)) for job_id in parents])
    assert stories == {("pending", "running", "finalizing"): len(parents)}
    assert await two[0].check() == []
