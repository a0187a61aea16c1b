"""Waking across processes and event loops. The long timeouts are never waited for: a test that has to is failing."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainstay.stores import Wake
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
    assert len(os.listdir(side / "topics")) == 1, "the folder of the queue went with the last of them"
    await SqliteStore(path).close()
    assert os.listdir(side / "topics") == []


async def test_opening_clears_away_what_the_killed_left_and_nothing_else(
    shared: World, path: Path, spawn: Spawn
) -> None:
    async with shared.store.wake(["queue:default", "job:x"]) as alive:
        sleeper = await asleep(alive)
        for _ in range(2):
            child = spawn("sleep_until_woken", path, "queue:default", "job:x", "job:y")
            assert child.line() == "asleep"
            child.kill()
        side = path.with_name("jobs.db-mainstay")
        assert len(os.listdir(side / "topics")) == 3

        await SqliteStore(path).close()

        assert len(os.listdir(side / "topics")) == 2
        assert [len(os.listdir(folder)) for folder in (side / "topics").iterdir()] == [1, 1]
        assert len(os.listdir(side / "sockets")) == 1
        await shared.submit()
        assert await sleeper is True


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


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[WakeBoard]:
    board = WakeBoard(tmp_path)
    yield board
    board.close()


async def asleep(wake: Wake) -> asyncio.Task[bool]:
    """A task that waits, and has fallen asleep."""
    sleeper = asyncio.create_task(wake.wait(LONG_S))
    await asyncio.sleep(0)
    return sleeper


def tell(board: WakeBoard, topic: str, n: int = 1) -> None:
    """What a committing process does; this loop can answer no doorbell before it is done."""
    board.notify(Counter({topic: n}), {board.folder_of(topic).name})


def registered(board: WakeBoard, topic: str) -> str:
    """The states of those registered for a topic: a letter for each."""
    folder = board.folder_of(topic)
    return "".join(sorted(name[0] for name in os.listdir(folder))) if folder.exists() else ""


async def test_a_subscriber_that_falls_asleep_while_it_is_being_looked_for_is_woken(board: WakeBoard) -> None:
    wake = board.subscribe(["queue:mail"])
    folder = board.folder_of("queue:mail")
    seen_awake = os.listdir(folder)
    sleeper = await asleep(wake)
    assert os.listdir(folder) != seen_awake

    board._take_and_send(folder, seen_awake, 1)

    assert await sleeper is True
    await wake.close()


async def test_a_subscriber_that_gives_up_waiting_while_it_is_being_looked_for_is_woken(board: WakeBoard) -> None:
    wake = board.subscribe(["queue:mail"])
    folder = board.folder_of("queue:mail")
    sleeper = await asleep(wake)
    seen_asleep = os.listdir(folder)
    await give_up(sleeper)
    assert os.listdir(folder) != seen_asleep

    board._take_and_send(folder, seen_asleep, 1)

    assert await wake.wait(LONG_S) is True


async def give_up(sleeper: asyncio.Task[bool]) -> None:
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)


@pytest.mark.parametrize("topic", ["queue:mail", "job:1", "session:1"])
async def test_more_sleepers_of_one_loop_than_its_socket_holds_doorbells_are_all_woken(
    board: WakeBoard, topic: str
) -> None:
    sleepers = [await asleep(board.subscribe([topic])) for _ in range(700)]
    tell(board, topic, len(sleepers))
    assert await asyncio.gather(*sleepers) == [True] * len(sleepers)
    assert registered(board, topic) == "b" * len(sleepers), "and all of them can be woken again"


async def test_waiters_for_different_jobs_that_settle_in_one_commit_are_all_woken(shared: World) -> None:
    await shared.open("s1", lease_s=LONG_S)
    jobs = [await shared.running() for _ in range(40)]
    sleepers = [await asleep(shared.store.wake([f"job:{job.id}"])) for job in jobs]
    await shared.store.apply([shared.change(job, "succeeded", holder="s1") for job in jobs])
    assert await asyncio.gather(*sleepers) == [True] * 40


@pytest.fixture
def stopped(tmp_path: Path, board: WakeBoard) -> Iterator[list[socket.socket]]:
    """Sockets of processes that were stopped: they take doorbells, as many as they hold, and answer none."""
    sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(60)]
    for n, ear in enumerate(sockets):
        ear.bind(f"/proc/self/fd/{board._folder_handle}/{n}")
    yield sockets
    for ear in sockets:
        ear.close()


async def test_stopped_processes_with_full_sockets_keep_nobody_else_from_being_woken(
    board: WakeBoard, stopped: list[socket.socket]
) -> None:
    """What one socket has sent and nobody has read counts against what it may send to anybody."""
    *full, empty = stopped
    for n in range(len(full)):
        while not (board._sockets / f"{n}.full").exists():
            assert board._send(f"{n}.1")
    with pytest.raises(BlockingIOError):
        board._sender.sendto(b"", empty.getsockname())
    sleeper = await asleep(board.subscribe(["queue:mail"]))
    tell(board, "queue:mail")
    assert await sleeper is True


async def test_a_wake_whose_doorbell_was_never_rung_is_told_at_the_next_wait(board: WakeBoard) -> None:
    """As when the process that took the registration is killed before it sends."""
    wake = board.subscribe(["queue:mail"])
    [name] = os.listdir(board.folder_of("queue:mail"))
    (board.folder_of("queue:mail") / name).unlink()
    assert await wake.wait(LONG_S) is True
    assert await wake.wait(0) is False
    sleeper = await asleep(wake)
    tell(board, "queue:mail")
    assert await sleeper is True


async def test_a_wake_whose_doorbell_was_never_rung_is_told_when_the_time_is_over(board: WakeBoard) -> None:
    wake = board.subscribe(["queue:mail"])
    sleeper = asyncio.create_task(wake.wait(QUIET_S))
    await asyncio.sleep(0)
    [name] = os.listdir(board.folder_of("queue:mail"))
    (board.folder_of("queue:mail") / name).unlink()
    assert await sleeper is True
    assert registered(board, "queue:mail") == "b"


async def test_a_doorbell_that_comes_late_wakes_nobody_without_need(board: WakeBoard) -> None:
    wake = board.subscribe(["queue:mail"])
    tell(board, "queue:mail")
    assert await wake.wait(0) is True, "seen before the loop had a chance to hear the doorbell"
    assert await wake.wait(QUIET_S) is False


async def test_one_woken_for_one_topic_is_awake_for_the_others_and_leaves_nothing_behind(board: WakeBoard) -> None:
    wake = board.subscribe(["queue:mail", "queue:reports"])
    sleeper = await asleep(wake)
    assert registered(board, "queue:reports") == "a"
    tell(board, "queue:mail")
    assert await sleeper is True
    assert registered(board, "queue:mail") == registered(board, "queue:reports") == "b"
    await wake.close()
    assert os.listdir(board._topics) == []


async def test_one_whose_time_was_over_is_awake_and_woken_after_those_who_sleep(board: WakeBoard) -> None:
    busy = [board.subscribe(["queue:mail"]) for _ in range(10)]
    for wake in busy:
        assert await wake.wait(0) is False
    sleeper = await asleep(board.subscribe(["queue:mail"]))
    assert registered(board, "queue:mail") == "a" + "b" * 10
    tell(board, "queue:mail")
    assert await sleeper is True


async def test_one_that_is_woken_and_gives_up_waiting_passes_the_wake_on(board: WakeBoard) -> None:
    first = board.subscribe(["queue:mail"])
    giving_up = await asleep(first)
    tell(board, "queue:mail")
    second = await asleep(board.subscribe(["queue:mail"]))
    await give_up(giving_up)
    await first.close()
    assert await second is True


async def test_a_topic_named_twice_is_one_subscription(board: WakeBoard) -> None:
    wake = board.subscribe(["queue:mail", "queue:mail"])
    assert await wake.wait(0) is False
    tell(board, "queue:mail")
    assert await wake.wait(LONG_S) is True
    await wake.close()
    assert os.listdir(board._topics) == []


async def test_a_subscription_whose_board_was_closed_leaves_no_registration_behind(tmp_path: Path) -> None:
    board = WakeBoard(tmp_path)
    wake = board.subscribe(["queue:mail"])
    sleeper = asyncio.create_task(wake.wait(QUIET_S))
    await asyncio.sleep(0)
    board.close()
    assert await sleeper is False
    await wake.close()
    assert os.listdir(tmp_path / "topics") == os.listdir(tmp_path / "sockets") == []


async def test_a_commit_looks_for_nobody_when_nobody_is_subscribed(
    shared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    listdir = os.listdir

    def watched(path: Path) -> list[str]:
        looked.append(path)
        return listdir(path)

    monkeypatch.setattr("mainstay.stores.sqlite.wake.os.listdir", watched)
    await shared.submit()
    assert looked == [], "on a file system that counts folders in its links, as Linux's common ones do"
    async with shared.store.wake(["queue:other"]):
        await shared.submit()
    assert len(looked) == 1


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_that_meets_the_bell_is_not_lost(tmp_path: Path, turns: int) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    async with store.wake(["queue:q"]) as wake:
        waiting = asyncio.ensure_future(wake.wait(60))
        for _ in range(5):
            await asyncio.sleep(0)
        wake._rung.set()  # type: ignore[attr-defined]
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.cancel():  # unless it has come to its end before
            with pytest.raises(asyncio.CancelledError):
                await waiting
    await store.close()
