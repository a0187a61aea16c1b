"""The turnstile: a fair queue of writers from different processes."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from mainstay.errors import StoreLocked
from mainstay.stores.sqlite.turnstile import Turnstile
from tests.conformance.world import World
from tests.stores.sqlite.conftest import Spawn
from tests.stores.sqlite.process import until


@pytest.fixture
def folder(path: Path) -> Path:
    side = path.with_name("jobs.db-mainstay")
    side.mkdir()
    return side


def is_waited_for(lock: Path) -> bool:
    """Whether somebody stands in line for a lock, as the kernel sees it."""
    inode = f":{lock.stat().st_ino} "
    return any(" -> " in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_who_waits_is_next_however_soon_the_last_one_asks_again(folder: Path, path: Path, spawn: Spawn) -> None:
    child = spawn("take_turns", path)
    mine = Turnstile(folder, timeout_s=60)
    book = path.with_name("book")
    assert child.line() == "ready"
    mine.enter()
    for turns in range(1, 101):
        child.tell()
        until(lambda: is_waited_for(folder / "turn"))
        assert not book.exists() or len(book.read_text().splitlines()) == turns - 1

        mine.leave()
        mine.enter()

        assert len(book.read_text().splitlines()) == turns, "it had waited longer and was passed over"
        assert child.line() == "left"
    mine.leave()
    mine.close()


def test_a_process_that_dies_inside_lets_the_next_one_in(folder: Path, path: Path, spawn: Spawn) -> None:
    child = spawn("take_turns", path)
    child.line()
    assert child.ask("stay") == "inside"
    mine = Turnstile(folder, timeout_s=60)
    child.kill()
    mine.enter()
    mine.leave()
    mine.close()


async def test_a_process_that_is_stopped_inside_is_waited_for_only_so_long(
    world: World, path: Path, spawn: Spawn
) -> None:
    child = spawn("take_turns", path)
    child.line()
    assert child.ask("stay") == "inside"
    child.stop()

    began = time.monotonic()
    with pytest.raises(StoreLocked, match="kept the write turn.*nothing was written.*stopped or hanging"):
        await world.store.insert([world.new(queue="refused")])
    assert time.monotonic() - began >= 0.2
    with pytest.raises(StoreLocked):
        await world.store.insert([world.new(queue="refused")])

    child.resume()
    assert child.ask() == "left"
    await world.submit()
    assert (await world.store.stats()).queues.keys() == {"default"}
    # and the queue is in order again: the turns that were given up do not come back
    assert child.ask() == "left"
    await world.submit()


def test_one_that_closes_while_it_waits_leaves_the_files_of_others_alone(
    folder: Path, path: Path, spawn: Spawn
) -> None:
    """The numbers of its lock files are given out again as soon as they are closed."""
    child = spawn("take_turns", path)
    child.line()
    assert child.ask("stay") == "inside"
    mine = Turnstile(folder, timeout_s=0.01)
    with pytest.raises(StoreLocked):
        mine.enter()
    numbers = (mine._gate, mine._turn)
    mine.close()
    files = {n: os.open(folder / f"{n}", os.O_RDWR | os.O_CREAT) for n in range(len(os.listdir("/proc/self/fd")) + 9)}
    for handle in files.values():
        fcntl.flock(handle, fcntl.LOCK_EX)

    assert child.ask() == "left"
    assert mine._waiter is not None
    mine._waiter.join()

    for name, handle in files.items():
        assert is_locked(folder / f"{name}"), f"somebody let go of a lock that was not his: {handle} of {numbers}"
        os.close(handle)


def is_locked(file: Path) -> bool:
    handle = os.open(file, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
