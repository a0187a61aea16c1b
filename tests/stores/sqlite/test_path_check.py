"""A wrong path is refused, and nothing is left behind."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from mainstay.errors import InvalidInput, SchemaTooNew, StoreDamaged, StoreError
from mainstay.stores import open_store
from mainstay.stores.sqlite import SqliteStore, schema


def everything(folder: Path) -> dict[str, str]:
    """Every file and folder there is, and what is in it."""
    return {
        str(found.relative_to(folder)): hashlib.sha256(found.read_bytes()).hexdigest() if found.is_file() else "-"
        for found in folder.rglob("*")
    }


async def refused(path: Path) -> StoreError:
    before = everything(path.parent)
    with pytest.raises(StoreError) as caught:
        await open_store(f"sqlite:///{path}")
    assert everything(path.parent) == before, "something was made or changed"
    return caught.value


async def test_a_folder_is_refused(path: Path) -> None:
    path.mkdir()

    assert str(await refused(path)) == f"{path} is a folder; name a file in it"


@pytest.mark.parametrize("text", ["print('hello')\n", "x" * 10_000], ids=["short", "long"])
async def test_a_file_that_is_no_database_is_refused(path: Path, text: str) -> None:
    path.write_text(text)

    error = await refused(path)

    assert str(error) == f"{path} is not an SQLite database; check the path"
    assert not isinstance(error, StoreDamaged)


async def test_what_is_not_a_regular_file_is_refused(path: Path) -> None:
    os.mkfifo(path)

    assert str(await refused(path)) == f"{path} is not a regular file; check the path"


@pytest.mark.parametrize("journal", ["delete", "wal"])
async def test_a_database_of_another_program_is_refused(path: Path, journal: str) -> None:
    theirs = apsw.Connection(str(path))
    theirs.pragma("journal_mode", journal)
    theirs.execute("CREATE TABLE theirs (x)")
    theirs.close()

    error = await refused(path)

    assert "is an SQLite database, but not a Mainstay store; choose another file" in str(error)
    assert not isinstance(error, StoreDamaged)


async def test_a_newer_database_that_was_moved_here_is_refused(path: Path) -> None:
    theirs = apsw.Connection(str(path))
    theirs.execute("CREATE TABLE jobs (x)")
    theirs.pragma("application_id", schema.APPLICATION_ID)
    theirs.pragma("user_version", schema.VERSION + 1)
    theirs.close()

    assert isinstance(await refused(path), SchemaTooNew)


async def test_a_link_to_a_folder_is_refused_like_the_folder(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(StoreError, match="is a folder; name a file in it"):
        await open_store(f"sqlite:///{path}")
    assert sorted(tmp_path.iterdir()) == before


async def test_a_database_of_ours_without_its_folder_is_opened(path: Path, tmp_path: Path) -> None:
    await SqliteStore(path).close()
    moved = path.rename(tmp_path / "moved.db")

    await SqliteStore(moved).close()


TRY_TO_WRITE = """
import sys, apsw
try:
    apsw.Connection(sys.argv[1]).execute("BEGIN IMMEDIATE")
except apsw.BusyError:
    print("locked")
"""


async def test_looking_at_a_file_does_not_drop_the_locks_this_process_has_on_it(path: Path) -> None:
    theirs = apsw.Connection(str(path))
    theirs.execute("CREATE TABLE theirs (x)")
    theirs.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreError, match="not a Mainstay store"):
        await open_store(f"sqlite:///{path}")

    tried = subprocess.run([sys.executable, "-c", TRY_TO_WRITE, path], capture_output=True, text=True, check=True)
    assert tried.stdout == "locked\n"
    theirs.execute("ROLLBACK")
    theirs.close()


async def test_the_log_of_another_programs_database_is_left_as_it_is(path: Path) -> None:
    theirs = apsw.Connection(str(path))
    theirs.pragma("journal_mode", "wal")
    theirs.execute("CREATE TABLE theirs (x)")
    log = path.with_name("jobs.db-wal")
    written = log.read_bytes()

    with pytest.raises(StoreError, match="not a Mainstay store"):
        await open_store(f"sqlite:///{path}")

    assert written
    assert log.read_bytes() == written
    theirs.close()


async def test_memory_by_the_name_sqlite_has_for_it_is_refused_with_the_url_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInput, match=r"^store: 'sqlite:///:memory:' .* use memory:$"):
        await open_store("sqlite:///:memory:")
    assert list(tmp_path.iterdir()) == []
