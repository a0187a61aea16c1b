"""Versioned values in one SQLite file, for the processes of one machine.

The file contains one table and nothing else. Writers of different processes queue at the turnstile; every write is a
transaction that is on the disk when it is acknowledged. Readers do not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

import apsw

from ...errors import InvalidInput, SchemaTooNew, StoreError
from ...storage import (
    Threads,
    check_key,
    check_options,
    duration_of,
    make_private_file,
    make_private_folder,
    report_exposed,
    shown_url,
    split_url,
)
from ..sqlite.errors import in_our_words
from ..sqlite.path_check import side_folder
from ..sqlite.sql import all_rows, first_row
from ..sqlite.turnstile import Turnstile
from .input_check import check_listing, check_value, new_version
from .port import Versioned, VersionedStore

T = TypeVar("T")

APPLICATION_ID = 0x4D41494B  # "MAIK": not a file of jobs
_VERSION = 1
_TABLE = "CREATE TABLE named (key TEXT NOT NULL PRIMARY KEY, version TEXT NOT NULL, value BLOB NOT NULL) STRICT"
#: greater than all characters of a key
_BEHIND = "\x7f"


class SqliteVersioned:
    """Open it with `open_versioned("sqlite:///values.db")`.

    Beside the file is a folder `values.db-mainstay` with locks; it contains no data.
    """

    def __init__(self, path: Path, *, place: str = "", busy_timeout_s: float = 10.0) -> None:
        self._path = path.absolute()
        self._place = place or f"sqlite:///{self._path}"
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.Lock()
        self._closed = False
        self._local = threading.local()
        self._reading: list[apsw.Connection] = []
        with contextlib.ExitStack() as undo, in_our_words(self._path):
            if not self._path.parent.is_dir():
                raise StoreError(f"the folder of {self._path} does not exist; create it first")
            if self._path.exists() and self._path.stat().st_size:
                self._check_existing()
            folder = side_folder(self._path)
            make_private_folder(folder, like=self._path)
            self._turnstile = Turnstile(folder, timeout_s=busy_timeout_s)
            undo.callback(self._turnstile.close)
            self._turnstile.enter()
            try:
                with contextlib.suppress(OSError):  # SQLite reports the reason
                    make_private_file(self._path)
                self._db = self._connect()
                undo.callback(self._db.close)
                self._prepare()
            finally:
                self._turnstile.leave()
            undo.pop_all()
        report_exposed(f"the store {self._path}", [self._path, folder], beside=True)
        self._writer = Threads(1, place=self._place)
        self._readers = Threads(2, place=self._place)

    @property
    def place(self) -> str:
        return self._place

    async def get(self, key: str) -> Versioned | None:
        check_key(key)

        def run(db: apsw.Connection) -> Versioned | None:
            row = first_row(db, "SELECT value, version FROM named WHERE key = ?", (key,))
            return Versioned(*row) if row else None

        return await self._read(run)

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        check_key(key)
        check_value(value)
        fresh = new_version()

        def run(db: apsw.Connection) -> str | None:
            db.execute(
                "UPDATE named SET value = ?, version = ? WHERE key = ? AND version = ?", (value, fresh, key, version)
            )
            return fresh if db.changes() else None

        return await self._write(run)

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        check_key(key)
        check_value(value)
        fresh = new_version()

        def run(db: apsw.Connection) -> str | None:
            db.execute("INSERT INTO named VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (key, fresh, value))
            return fresh if db.changes() else None

        return await self._write(run)

    async def delete(self, key: str, version: str) -> bool:
        check_key(key)

        def run(db: apsw.Connection) -> bool:
            db.execute("DELETE FROM named WHERE key = ? AND version = ?", (key, version))
            return db.changes() > 0

        return await self._write(run)

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_listing(prefix, after, limit)
        query = "SELECT key FROM named WHERE key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"

        def run(db: apsw.Connection) -> list[str]:
            return [key for (key,) in all_rows(db, query, (after, prefix, prefix + _BEHIND, limit))]

        return await self._read(run)

    async def close(self) -> None:
        await self._writer.close()
        await self._readers.close()
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._db.close()
            for db in self._reading:
                db.close()
            self._turnstile.close()

    # -- internals ----------------------------------------------------------------------------

    async def _read(self, run: Callable[[apsw.Connection], T]) -> T:
        def on_own_connection() -> T:
            with in_our_words(self._path):
                db: apsw.Connection | None = getattr(self._local, "db", None)
                if db is None:
                    db = self._local.db = self._connect()
                    self._reading.append(db)
                return run(db)

        return await self._readers.run(on_own_connection)

    async def _write(self, run: Callable[[apsw.Connection], T]) -> T:
        def in_turn() -> T:
            with in_our_words(self._path):
                self._turnstile.enter()
                try:
                    return _in_transaction(self._db, run)
                finally:
                    self._turnstile.leave()

        return await self._writer.run(in_turn)

    def _connect(self) -> apsw.Connection:
        db = apsw.Connection(str(self._path))
        db.set_busy_timeout(int(self._busy_timeout_s * 1000))
        db.pragma("synchronous", "FULL")
        return db

    def _check_existing(self) -> None:
        """Refuse a file of another program, before anything is created beside it."""
        db = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(int(self._busy_timeout_s * 1000))
            self._admit(db)
        except apsw.NotADBError:
            raise StoreError(f"{self._path} is not an SQLite database; is the path right?") from None
        finally:
            db.close()

    def _admit(self, db: apsw.Connection) -> bool:
        """Whether the table exists; refuses another kind of database."""
        with db:  # in one transaction: another process may be creating the table
            mark, version = db.pragma("application_id"), db.pragma("user_version")
            empty = first_row(db, "SELECT count(*) FROM sqlite_schema") == (0,)
        if mark == 0 and version == 0 and empty:
            return False
        if mark != APPLICATION_ID:
            raise StoreError(
                f"{self._path} is an SQLite database, but not one of versioned values; choose another file"
            )
        if version > _VERSION:
            raise SchemaTooNew(
                f"{self._path} has schema version {version}, this Mainstay knows up to {_VERSION}: "
                "upgrade Mainstay in this environment; nothing was changed"
            )
        return True

    def _prepare(self) -> None:
        if self._admit(self._db):
            return

        def create(db: apsw.Connection) -> None:
            db.execute(_TABLE)
            db.pragma("application_id", APPLICATION_ID)
            db.pragma("user_version", _VERSION)

        self._db.pragma("journal_mode", "WAL")
        _in_transaction(self._db, create)


def _in_transaction(db: apsw.Connection, run: Callable[[apsw.Connection], T]) -> T:
    db.execute("BEGIN IMMEDIATE")
    try:
        result = run(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # after some errors SQLite has rolled back by itself
            db.execute("ROLLBACK")
        raise
    return result


async def open_sqlite(url: str, *, options: dict[str, str]) -> VersionedStore:
    """Open `sqlite:///relative.db` or `sqlite:////absolute.db`. Option: `busy_timeout` (how long to wait for other
    writers, 10s)."""
    check_options(options, ["busy_timeout"])
    parts = split_url(url)
    path = Path(unquote(parts.path.removeprefix("/")))
    if parts.netloc or not path.name or parts.fragment:
        raise InvalidInput(
            "store", f"{shown_url(url)!r} names no file; write sqlite:///values.db, or sqlite:////srv/values.db"
        )
    busy_timeout_s = duration_of(options, "busy_timeout", "10s")
    return await asyncio.to_thread(SqliteVersioned, path, place=shown_url(url), busy_timeout_s=busy_timeout_s)
