"""Processes killed with SIGKILL while they commit and roll: what was acknowledged stays, once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay.control.check import check
from mainstay.stores import open_store
from mainstay.stores.registry import JobRegistry
from mainstay.stores.registry.follower import BLOCK
from tests.conformance.world import World
from tests.crash import worker
from tests.crash.test_sigkill import Told, assert_kept, crew_of
from tests.stores.sqlite.process import Child

ROUNDS, CREW = 10, 2


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Child]:
    child = Child(Path(worker.__file__), f"file://{tmp_path}/registry")
    yield child
    child.end()


@pytest.mark.slow
async def test_killed_processes_lose_nothing_double_nothing_and_stop_nobody(tmp_path: Path, nursery: Child) -> None:
    rng, told = random.Random(3), Told()
    url = f"file://{tmp_path}/registry"
    for number in range(ROUNDS):
        with crew_of(CREW, nursery, tmp_path, f"round{number}") as crew:
            assert [victim.line() for victim in crew] == ["ready\n"] * CREW
            for victim in crew:
                victim.kill(rng, told)
        store = await open_store(url)
        world = World(store, store.clock)  # type: ignore[arg-type]
        for victim in crew:  # the leases are long; a supervisor knows that they are dead
            await store.close_session(victim.name)
        told.cut += len(await world.reap())
        assert await store.overdue() == []
        if number % 5 == 4:
            await assert_kept(world, told)
        await store.close()

    # the kills did hurt
    assert told.cut > ROUNDS
    store = await open_store(url)
    assert isinstance(store, JobRegistry)
    world = World(store, store.clock)  # type: ignore[arg-type]
    while (await store.about()).commits % BLOCK:
        await world.submit()
    await store.close()
    # what is left is in a snapshot by now, and says the same
    store = await open_store(url)
    assert isinstance(store, JobRegistry)
    assert (await store.about()).snapshot >= BLOCK
    await assert_kept(World(store, store.clock), told)  # type: ignore[arg-type]
    assert (await check(store)).violations == ()
    await store.close()
