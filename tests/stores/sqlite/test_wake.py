"""Waking across processes and event loops. The long timeouts are never waited for: a test that has to is failing."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.stores.sqlite import SqliteStore
from mainstay.stores.sqlite.wake import WakeBoard
from tests.conformance.world import World
from tests.stores.sqlite.conftest import Spawn

LONG_S = 60.0
#: how long to be sure that nobody else is woken
QUIET_S = 0.1


@pytest.fixture
async def shared(path: Path) -> AsyncIterator[World]:
    store = SqliteStore(path)
    yield World(store, store.clock)  # type: ignore[arg-type]
    await store.close()


async def test_a_job_wakes_a_process_that_sleeps(shared: World, path: Path, spawn: Spawn) -> None:
    child = spawn("sleep_until_woken", path, "queue:default")
    assert child.line() == "asleep"
    await shared.submit()
    assert child.line() == "woken"


async def test_jobs_wake_no_more_processes_than_there_are_jobs(shared: World, path: Path, spawn: Spawn) -> None:
    children = [spawn("sleep_until_woken", path, "queue:default") for _ in range(4)]
    assert [child.line() for child in children] == ["asleep"] * 4
    lines = [asyncio.ensure_future(asyncio.to_thread(child.line)) for child in children]

    await shared.store.insert([shared.new(), shared.new()])

    while sum(line.done() for line in lines) < 2:
        await asyncio.wait([line for line in lines if not line.done()], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([line for line in lines if not line.done()], timeout=QUIET_S)
    assert sum(line.done() for line in lines) == 2
    await shared.store.insert([shared.new(), shared.new()])
    assert await asyncio.gather(*lines) == ["woken"] * 4


async def test_a_killed_sleeper_does_not_swallow_the_wake(shared: World, path: Path, spawn: Spawn) -> None:
    dead = [spawn("sleep_until_woken", path, "queue:default") for _ in range(3)]
    for child in dead:
        assert child.line() == "asleep"
    alive = spawn("sleep_until_woken", path, "queue:default")
    assert alive.line() == "asleep"
    for child in dead:
        child.kill()
    await shared.submit()
    assert alive.line() == "woken"


async def test_what_killed_sleepers_left_behind_is_cleared_away(shared: World, path: Path, spawn: Spawn) -> None:
    for _ in range(2):
        child = spawn("sleep_until_woken", path, "queue:default", "job:x")
        assert child.line() == "asleep"
        child.kill()
    await shared.store.insert([shared.new() for _ in range(5)])
    side = path.with_name("jobs.db-mainstay")
    assert os.listdir(side / "sockets") == []
    assert [name for folder in (side / "topics").iterdir() for name in os.listdir(folder)] != [], "job:x was not told"
    await shared.store.insert([shared.new()])


async def test_a_wake_finds_its_way_beside_a_database_with_a_long_path(tmp_path: Path, spawn: Spawn) -> None:
    folder = tmp_path / ("long" * 30) / ("longer" * 20)
    folder.mkdir(parents=True)
    path = folder / "jobs.db"
    store = SqliteStore(path)
    world = World(store, store.clock)  # type: ignore[arg-type]
    child = spawn("sleep_until_woken", path, "queue:default")
    assert child.line() == "asleep"
    await world.submit()
    assert child.line() == "woken"

    async with store.wake(["queue:back"]) as wake:
        waiting = asyncio.ensure_future(wake.wait(LONG_S))
        await world.submit(queue="back")
        assert await waiting is True
    await store.close()


async def test_sleepers_of_two_stores_in_one_process_are_woken(shared: World, path: Path) -> None:
    second = SqliteStore(path)
    async with shared.store.wake(["queue:default"]) as one, second.wake(["queue:default"]) as two:
        waiting = [asyncio.ensure_future(wake.wait(LONG_S)) for wake in (one, two)]
        await asyncio.sleep(0)
        await shared.store.insert([shared.new(), shared.new()])
        assert await asyncio.gather(*waiting) == [True, True]
    await second.close()


def test_sleepers_in_several_event_loops_of_one_store_are_all_woken(path: Path) -> None:
    store = SqliteStore(path)
    world = World(store, store.clock)  # type: ignore[arg-type]
    asleep = threading.Barrier(4)
    woken: list[bool] = []

    async def sleep() -> None:
        async with store.wake(["queue:default"]) as wake:
            waiting = asyncio.ensure_future(wake.wait(LONG_S))
            await asyncio.sleep(0)
            await asyncio.to_thread(asleep.wait)
            woken.append(await waiting)

    threads = [threading.Thread(target=lambda: asyncio.run(sleep())) for _ in range(3)]
    for thread in threads:
        thread.start()
    asleep.wait()
    asyncio.run(_insert(store, world, 3))
    for thread in threads:
        thread.join()
    assert woken == [True] * 3
    asyncio.run(store.close())


def test_a_loop_that_ended_does_not_keep_the_others_from_being_woken(path: Path) -> None:
    store = SqliteStore(path)
    world = World(store, store.clock)  # type: ignore[arg-type]

    async def subscribe_and_leave() -> None:
        async with store.wake(["queue:other"]):
            pass

    async def sleep_through_the_end_of_another_loop() -> bool:
        async with store.wake(["queue:default"]) as wake:
            waiting = asyncio.ensure_future(wake.wait(LONG_S))
            await asyncio.sleep(0)
            await asyncio.to_thread(lambda: asyncio.run(subscribe_and_leave()))
            await store.insert([world.new()])
            return await waiting

    for _ in range(2):
        assert asyncio.run(sleep_through_the_end_of_another_loop())
    asyncio.run(store.close())


async def _insert(store: SqliteStore, world: World, n: int) -> None:
    await store.insert([world.new() for _ in range(n)])


async def test_a_subscriber_that_falls_asleep_while_it_is_being_looked_for_is_woken(tmp_path: Path) -> None:
    board = WakeBoard(tmp_path)
    wake = board.subscribe(["queue:mail"])
    folder = board.folder_of("queue:mail")
    seen_awake = os.listdir(folder)
    sleeper = asyncio.create_task(wake.wait(5))
    await asyncio.sleep(0)
    assert os.listdir(folder) != seen_awake

    board._take_and_send(folder, seen_awake, 1)

    assert await sleeper is True
    await wake.close()
    board.close()
