"""The last two of several dependencies finish at the same moment: exactly one of them releases who waits."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from mainstay.clock import SystemClock
from mainstay.lifecycle import Move
from mainstay.model import Session
from mainstay.stores import JobStore, open_store
from tests.conformance.adapters import Adapter
from tests.conformance.patience import patiently
from tests.conformance.world import World

ROOT = Path(__file__).parents[2]
SIDES = ("left", "right")
#: where each commit of one process races with the other's by itself, and takes many times as long, a part will do
SHARE = {"registry": 0.3}


def a_world(store: JobStore) -> World:
    return World(store, SystemClock())  # type: ignore[arg-type]


async def pairs(store: JobStore, n: int) -> list[str]:
    """n times a job of each side, and one that waits for both; the ids of those who wait."""
    world = a_world(store)
    waiters: list[str] = []
    for _ in range(0, n, 250):
        batch = []
        for _ in range(min(250, n - len(waiters))):
            sides = [world.new(queue=side) for side in SIDES]
            then = world.new(queue="then", after=[new.job for new in sides])
            batch += [*sides, then]
            waiters.append(then.job.id)
        await store.insert(batch)
    return waiters


async def finish_side(store: JobStore, side: str, n: int) -> None:
    """Claim and end n jobs of one side, a few at a time; every third of them fails first and is tried again."""
    world, rng = a_world(store), random.Random(side)
    await store.open_session(Session(id=side, pid=os.getpid(), lease_s=600))
    done = 0
    while done < n:
        few = rng.randint(1, 5)
        held = await patiently(lambda few=few: store.claim([side], side, few))
        again = [job for job in held if job.token == 1 and rng.random() < 0.3]
        ended = [job for job in held if job not in again]
        now_ms = world.clock.now_ms()
        retry = Move(to="scheduled", fields={"due_ms": now_ms})
        changes = [world.change(job, "failed", retry, holder=side) for job in again]
        changes += [world.change(job, "succeeded", holder=side) for job in ended]
        answers = await patiently(lambda changes=changes: store.apply(changes))
        assert {answer.outcome for answer in answers} <= {"applied"}
        done += len(ended)
        await asyncio.sleep(0)


async def assert_each_released_once(store: JobStore, waiters: list[str]) -> None:
    stories = Counter([tuple(event.to for event in await store.events(job_id)) for job_id in waiters])
    assert stories == {("scheduled", "pending"): len(waiters)}
    await store.open_session(Session(id="last", pid=os.getpid(), lease_s=600))
    claimed: list[str] = []
    while found := await store.claim(["then"], "last", 500):
        claimed += [job.id for job in found]
    assert sorted(claimed) == sorted(waiters)
    assert await store.check() == []


async def test_pairs_that_end_in_two_tasks_at_once(adapter: Adapter, tmp_path: Path) -> None:
    store = await open_store(adapter.at(tmp_path))
    world = a_world(store)
    await world.open("s1", lease_s=600)
    waiters = await pairs(store, 300)
    left, right = [await store.claim([side], "s1", 300) for side in SIDES]
    for a, b in zip(left, right, strict=True):
        await asyncio.gather(*(world.move(job, "succeeded", holder="s1") for job in (a, b)))
    await assert_each_released_once(store, waiters)
    await store.close()


@pytest.mark.slow
def test_pairs_that_end_in_two_threads_at_once(adapter: Adapter, tmp_path: Path) -> None:
    n = round(400 * SHARE.get(adapter.name, 1))
    store = asyncio.run(open_store(adapter.at(tmp_path)))
    waiters = asyncio.run(pairs(store, n))
    errors: list[BaseException] = []

    def act(side: str) -> None:
        try:
            asyncio.run(finish_side(store, side, n))
        except BaseException as error:  # noqa: BLE001 - told to the test, not to the thread
            errors.append(error)

    threads = [threading.Thread(target=act, args=(side,), daemon=True) for side in SIDES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    asyncio.run(assert_each_released_once(store, waiters))
    asyncio.run(store.close())


@pytest.mark.slow
async def test_pairs_that_end_in_two_processes_at_once(adapter: Adapter, tmp_path: Path) -> None:
    if not adapter.persistent:
        pytest.skip(f"a {adapter.name} store belongs to one process")
    n = round(500 * SHARE.get(adapter.name, 1))
    url = adapter.at(tmp_path)
    store = await open_store(url)
    waiters = await pairs(store, n)
    running = [
        subprocess.Popen(
            [sys.executable, __file__, url, side, str(n)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        )
        for side in SIDES
    ]
    try:
        assert [await asyncio.to_thread(process.wait) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
            process.wait()
    await assert_each_released_once(store, waiters)
    await store.close()


async def main(url: str, side: str, n: str) -> None:
    """One of the two processes."""
    store = await open_store(url)
    await finish_side(store, side, int(n))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
