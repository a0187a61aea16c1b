"""The last two units of a job finish at the same moment, on two connections: one of them moves the job, once."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter

import pytest

from mainstay.clock import SystemClock
from mainstay.lifecycle import Move
from mainstay.model import Session
from mainstay.stores import JobStore, open_store
from tests.conformance.world import World

SIDES = ("left", "right")
FINISH = Move(to="finalizing", reason="all units are settled")


def a_world(store: JobStore) -> World:
    return World(store, SystemClock())  # type: ignore[arg-type]


async def families(store: JobStore, n: int) -> list[str]:
    """n running jobs, each with one unit for each side."""
    world = a_world(store)
    await store.open_session(Session(id="parents", lease_s=600))
    parents = []
    for _ in range(0, n, 250):
        made = [world.new(queue="parents") for _ in range(min(250, n - len(parents)))]
        await store.insert(made)
        parents += [job.id for job in await store.claim(["parents"], "parents", 250)]
        units = [world.new(queue=side, parent=new.job.id, unit=side) for new in made for side in SIDES]
        await store.insert(units)
    return parents


async def finish_side(url: str, side: str, n: int) -> int:
    """End all units of one side, a few at a time; how many were the last of their parents."""
    store = await open_store(url)
    world, rng = a_world(store), random.Random(side)
    await store.open_session(Session(id=side, lease_s=600))
    done = last = 0
    while done < n:
        held = await store.claim([side], side, rng.randint(1, 5))
        answers = await store.apply([world.change(job, "succeeded", holder=side, on_last=FINISH) for job in held])
        assert {answer.outcome for answer in answers} <= {"applied"}
        done += len(held)
        last += sum(answer.last for answer in answers)
    await store.close()
    return last


@pytest.mark.slow
def test_each_parent_is_moved_once(redis_url: str) -> None:
    n = 400
    store = asyncio.run(open_store(redis_url))
    parents = asyncio.run(families(store, n))
    last: dict[str, int] = {}

    def act(side: str) -> None:
        last[side] = asyncio.run(finish_side(redis_url, side, n))

    threads = [threading.Thread(target=act, args=(side,), daemon=True) for side in SIDES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def stories() -> Counter[tuple[str, ...]]:
        return Counter([tuple(event.to for event in await store.events(parent)) for parent in parents])

    assert sum(last.values()) == n
    assert asyncio.run(stories()) == {("pending", "running", "finalizing"): n}
    assert asyncio.run(store.check()) == []
    asyncio.run(store.close())
