"""A locked file, a full disk, a folder that cannot be written: a clear error, nothing half-written, and no scars."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import apsw
import pytest

from mainstay.errors import StoreError, StoreFull, StoreLocked
from mainstay.stores import open_store
from mainstay.stores.sqlite import SqliteStore
from tests.conformance.world import World
from tests.stores.sqlite.conftest import Spawn


async def test_a_file_that_another_program_keeps_locked_is_named_in_time(
    world: World, path: Path, spawn: Spawn
) -> None:
    other = spawn("keep_locked", path)
    assert other.line() == "locked"

    began = time.monotonic()
    answers = await asyncio.gather(
        *(world.store.insert([world.new(queue="refused")]) for _ in range(5)), return_exceptions=True
    )
    took = time.monotonic() - began

    assert {type(answer) for answer in answers} == {StoreLocked}
    assert str(path) in str(answers[0])
    assert "locked by another program; nothing was written" in str(answers[0])
    assert 0.2 <= took < 60
    assert await world.store.stats() is not None, "reading goes on"
    assert other.ask() == "unlocked"
    await world.submit()
    assert (await world.store.stats()).queues.keys() == {"default"}


async def test_a_lock_that_is_given_back_in_time_is_only_a_wait(path: Path, spawn: Spawn) -> None:
    store = SqliteStore(path, busy_timeout_s=60)
    world = World(store, store.clock)  # type: ignore[arg-type]
    other = spawn("keep_locked", path)
    assert other.line() == "locked"
    waiting = asyncio.ensure_future(store.insert([world.new()]))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(other.ask) == "unlocked"
    assert (await waiting)[0].created
    await store.close()


async def test_a_database_at_its_own_limit_is_full_and_works_again_with_more_room(world: World) -> None:
    store = world.store
    assert isinstance(store, SqliteStore)
    kept = [await world.submit(payload=bytes(2000)) for _ in range(3)]
    pages = await store._engine.write(lambda tx: tx.db.pragma("max_page_count", tx.db.pragma("page_count") + 1))
    before = await world.dump()

    with pytest.raises(StoreFull, match="no space left for .*nothing of this call was written"):
        await store.insert([world.new(payload=bytes(2000)) for _ in range(20)])

    assert await world.dump() == before
    await store._engine.write(lambda tx: tx.db.pragma("max_page_count", pages * 100))
    made = await store.insert([world.new(payload=bytes(2000)) for _ in range(20)])
    assert all(each.created for each in made)
    assert None not in await store.get([job.id for job in kept])


def _namespace() -> list[str]:
    """The command that runs another one where it may mount; skips by name where there is none."""
    for wrapper in (["unshare", "--user", "--map-root-user", "--mount"], ["unshare", "--mount"]):
        trial = 'd=$(mktemp -d) && mount -t tmpfs -o size=1m tmpfs "$d"'
        try:
            if subprocess.run([*wrapper, "sh", "-c", trial], capture_output=True, check=False).returncode == 0:
                return wrapper
        except FileNotFoundError:
            break
    pytest.skip("a disk of its own cannot be mounted here (needs unshare and the right to mount)")


def test_a_full_disk_loses_nothing_and_works_again_with_more_room(tmp_path: Path, spawn: Spawn) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    child = spawn("fill_the_disk", disk, wrapper=_namespace())

    told = json.loads(child.line())

    assert "no space left" in told["message"]
    assert told["acknowledged"] > 20
    assert told["kept"] == told["acknowledged"], "an acknowledged job is gone"
    assert told["stored"] == told["acknowledged"], "a refused job is there"
    assert told["afterwards"] is True
    assert told["check"] == []


def _without_privileges() -> list[str]:
    """The command under which permission bits count; root ignores them otherwise."""
    if os.geteuid() != 0:
        return []
    wrapper = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    if not shutil.which("setpriv") or subprocess.run([*wrapper, "true"], check=False).returncode:
        pytest.skip("running as root, which ignores permissions, and setpriv is not there to give that up")
    return wrapper


async def _made(path: Path) -> None:
    store = SqliteStore(path)
    await store.close()


async def test_a_folder_that_cannot_be_written_is_refused_for_a_new_database(tmp_path: Path, spawn: Spawn) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o555)
    child = spawn("open_it", folder / "jobs.db", wrapper=_without_privileges())
    told = child.line()
    folder.chmod(0o755)
    assert told.startswith("store_read_only ")
    assert "must be writable" in told
    assert list(folder.iterdir()) == []


async def test_a_folder_that_cannot_be_written_is_refused_for_an_old_database(tmp_path: Path, spawn: Spawn) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    await _made(folder / "jobs.db")
    held = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    folder.chmod(0o555)
    child = spawn("open_it", folder / "jobs.db", wrapper=_without_privileges())
    told = child.line()
    folder.chmod(0o755)
    assert told.startswith("store_read_only ")
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == held


async def test_a_file_that_cannot_be_written_is_refused(path: Path, spawn: Spawn) -> None:
    await _made(path)
    held = path.read_bytes()
    path.chmod(0o444)
    child = spawn("open_it", path, wrapper=_without_privileges())
    told = child.line()
    path.chmod(0o644)
    assert told.startswith("store_read_only ")
    assert "check owner and permissions" in told
    assert path.read_bytes() == held


async def test_a_side_folder_of_somebody_else_is_refused(path: Path, spawn: Spawn) -> None:
    await _made(path)
    side = path.with_name("jobs.db-mainstay")
    for file in side.iterdir():
        file.chmod(0o444 if file.is_file() else 0o555)
    side.chmod(0o555)
    child = spawn("open_it", path, wrapper=_without_privileges())
    told = child.line()
    side.chmod(0o755)
    assert told.startswith("store_read_only ")


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "jobs.db"
    with pytest.raises(StoreError, match=f"the folder of {path} does not exist; create it first"):
        await open_store(f"sqlite:///{path}")
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_not_there_is_not_made_when_told_so(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        await open_store(f"sqlite:///{path}?create=no")
    assert not path.exists()


async def test_a_reader_that_stays_open_does_not_stop_writers(world: World, path: Path) -> None:
    other = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    await world.submit()
    assert other.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    other.close()
