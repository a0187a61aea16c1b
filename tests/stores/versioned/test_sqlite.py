"""What only an SQLite file can do wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from mainstay.errors import InvalidInput, SchemaTooNew, StoreError, StoreLocked, UnknownOption
from mainstay.stores import open_store
from mainstay.stores.sqlite.sql import first_row
from mainstay.stores.versioned import open_versioned
from mainstay.stores.versioned.sqlite import SqliteVersioned


async def test_an_answer_is_on_the_disk_and_readers_wait_for_nobody(tmp_path: Path) -> None:
    store = SqliteVersioned(tmp_path / "x.db")

    assert store._db.pragma("synchronous") == 2
    assert store._db.pragma("journal_mode") == "wal"
    await store.close()


async def test_keys_are_listed_from_an_index_without_reading_values(tmp_path: Path) -> None:
    store = SqliteVersioned(tmp_path / "x.db")
    plan = store._db.execute("EXPLAIN QUERY PLAN SELECT key FROM named WHERE key > '' ORDER BY key LIMIT 5").fetchall()

    assert "USING COVERING INDEX" in str(plan[0][3])
    await store.close()


async def test_a_program_that_keeps_it_locked_delays_writers_only_so_long_and_readers_not_at_all(
    tmp_path: Path,
) -> None:
    store = SqliteVersioned(tmp_path / "x.db", busy_timeout_s=0.05)
    version = str(await store.create_if_absent("a", b"x"))
    browser = apsw.Connection(str(tmp_path / "x.db"))
    browser.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreLocked, match="nothing was written"):
        await store.put("a", b"y", version)
    assert await store.list_keys() == ["a"]

    browser.execute("ROLLBACK")
    browser.close()
    assert await store.put("a", b"y", version)
    await store.close()


async def test_a_file_of_jobs_is_refused_and_so_is_one_of_values_for_jobs(tmp_path: Path) -> None:
    jobs = await open_store(f"sqlite:///{tmp_path}/jobs.db")
    await jobs.close()
    values = await open_versioned(f"sqlite:///{tmp_path}/values.db")
    await values.close()

    with pytest.raises(StoreError, match="not one of versioned values"):
        await open_versioned(f"sqlite:///{tmp_path}/jobs.db")
    (tmp_path / "values.db-mainstay" / "gate").unlink()
    (tmp_path / "values.db-mainstay" / "turn").unlink()
    (tmp_path / "values.db-mainstay").rmdir()
    with pytest.raises(StoreError, match="not a Mainstay store"):
        await open_store(f"sqlite:///{tmp_path}/values.db")


async def test_what_is_no_database_is_refused_and_nothing_is_made_beside_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database at all, only some text that goes on and on\n" * 50)

    with pytest.raises(StoreError, match="is not an SQLite database"):
        await open_versioned(f"sqlite:///{tmp_path}/notes.txt")
    assert os.listdir(tmp_path) == ["notes.txt"]


async def test_a_file_whose_table_another_process_makes_meanwhile_is_not_taken_for_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "values.db"
    empty = apsw.Connection(str(path))
    empty.pragma("journal_mode", "WAL")
    empty.close()
    others: list[SqliteVersioned] = []

    def just_before(*asked: Any) -> object:
        if not others:
            monkeypatch.undo()
            others.append(SqliteVersioned(path))
        return first_row(*asked)

    monkeypatch.setattr("mainstay.stores.versioned.sqlite.first_row", just_before)
    store = SqliteVersioned(path)
    assert await others[0].create_if_absent("a", b"1")
    assert (await store.get("a")) is not None
    await others[0].close()
    await store.close()


async def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    store = SqliteVersioned(tmp_path / "x.db")
    store._db.pragma("user_version", 2)
    await store.close()

    with pytest.raises(SchemaTooNew, match="upgrade Mainstay"):
        SqliteVersioned(tmp_path / "x.db")


@pytest.mark.parametrize("url", ["sqlite:", "sqlite:///", "sqlite://host/x.db", "sqlite:///x.db#y"])
async def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="names no file; write sqlite:///values.db"):
        await open_versioned(url)


async def test_a_file_in_no_folder_and_an_unknown_option_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="create it first"):
        await open_versioned(f"sqlite:///{tmp_path}/no/x.db")
    with pytest.raises(UnknownOption):
        await open_versioned(f"sqlite:///{tmp_path}/x.db?durable=no")
    assert os.listdir(tmp_path) == []
