"""A file that is damaged as a file: said so at open, with advice, and left exactly as it is."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path

import pytest

from mainstay.errors import StoreDamaged, StoreError
from mainstay.stores.sqlite import SqliteStore
from mainstay.testing import VirtualClock
from tests.conformance.world import World

PAGE = 4096


@pytest.fixture
async def made(path: Path) -> Path:
    """A database with a few dozen pages, cleanly closed."""
    clock = VirtualClock()
    world = World(SqliteStore(path, clock=clock), clock)
    await world.store.insert([world.new(payload=bytes(500)) for _ in range(200)])
    await world.store.close()
    assert path.stat().st_size > 40 * PAGE
    return path


def digests(path: Path) -> dict[str, str]:
    files = [path.with_name(path.name + ending) for ending in ("", "-wal")]
    contents = {file.name: file.read_bytes() for file in files if file.exists()}
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items() if content}


def refused(path: Path) -> str:
    before = digests(path)
    with pytest.raises(StoreDamaged) as caught:
        SqliteStore(path)
    assert digests(path) == before, "the evidence was touched"
    return str(caught.value)


def test_a_file_cut_short_is_refused(made: Path) -> None:
    with made.open("r+b") as file:
        file.truncate(20 * PAGE)
    told = refused(made)
    assert f"{made} is damaged as a file, not only in its rows" in told
    assert "restore a backup" in told
    assert ".recover" in told


def test_a_file_cut_in_the_middle_of_a_page_is_refused(made: Path) -> None:
    with made.open("r+b") as file:
        file.truncate(20 * PAGE - 1000)
    refused(made)


def test_a_file_cut_within_its_header_is_refused(made: Path) -> None:
    with made.open("r+b") as file:
        file.truncate(50)
    refused(made)


def test_a_file_of_zeros_is_refused(made: Path) -> None:
    made.write_bytes(bytes(made.stat().st_size))
    refused(made)


def test_pages_of_zeros_are_found(made: Path) -> None:
    with made.open("r+b") as file:
        file.seek(5 * PAGE)
        file.write(bytes(10 * PAGE))
    refused(made)


def test_a_file_of_ours_that_was_overwritten_is_damaged(made: Path) -> None:
    made.write_text("the jobs are in the other file\n" * 100)
    refused(made)


@pytest.mark.parametrize("seed", range(10))
def test_flipped_bits_in_the_structure_are_found(made: Path, seed: int) -> None:
    """In the header of a page, where its kind and the places of its rows are written."""
    rng = random.Random(seed)
    content = bytearray(made.read_bytes())
    for number in rng.sample(range(1, len(content) // PAGE), 8):
        for at in range(8):
            content[number * PAGE + at] ^= 1 << rng.randrange(8)
    made.write_bytes(content)
    refused(made)


async def test_a_cut_file_is_left_alone_together_with_its_log(made: Path, tmp_path: Path) -> None:
    """A crash leaves a write-ahead log behind; closing a connection would write it into the damaged file."""
    clock = VirtualClock()
    world = World(SqliteStore(made, clock=clock), clock)
    clock.advance(1)
    await world.submit(name="in the log")
    crashed = _as_a_crash_would_leave_it(made, tmp_path)
    await world.store.close()
    with crashed.open("r+b") as file:
        file.truncate(20 * PAGE)
    refused(crashed)


def _as_a_crash_would_leave_it(path: Path, folder: Path) -> Path:
    """The files as they stand while a process has them open, its log not yet written back."""
    crashed = folder / "crashed.db"
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", f"{crashed}{ending}")
    assert (folder / "crashed.db-wal").stat().st_size > 0
    return crashed


async def test_a_database_left_by_a_crash_is_whole(path: Path, tmp_path: Path) -> None:
    clock = VirtualClock()
    world = World(SqliteStore(path, clock=clock), clock)
    await world.store.insert([world.new() for _ in range(50)])
    crashed = _as_a_crash_would_leave_it(path, tmp_path)
    await world.store.close()

    again = World(SqliteStore(crashed, clock=clock), clock)
    assert (await again.store.stats()).queues["default"].counts == {"pending": 50}
    await again.assert_sound()
    await again.store.close()


async def test_damage_that_shows_only_later_is_the_same_clear_error(made: Path) -> None:
    clock = VirtualClock()
    store = SqliteStore(made, clock=clock)
    world = World(store, clock)
    with made.open("r+b") as file:
        file.seek(PAGE)
        file.write(b"\xff" * (made.stat().st_size - PAGE))
    with pytest.raises(StoreError, match="damaged as a file"):
        await world.store.check()
    await store.close()
