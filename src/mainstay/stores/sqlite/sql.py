"""Helpers for statements, typed as loosely as SQL is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import apsw

Row = tuple[Any, ...]


def marks(columns: Sequence[str]) -> str:
    """The placeholders of values.

    >>> marks(["id", "name"])
    '?, ?'
    """
    return ", ".join("?" * len(columns))


def all_rows(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    return db.execute(sql, values).fetchall()


def first_row(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Row | None:
    return db.execute(sql, values).fetchone()


def value(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """The value of a statement that always returns one."""
    row = first_row(db, sql, values)
    assert row is not None, sql
    return row[0]


@contextlib.contextmanager
def savepoint(db: apsw.Connection) -> Iterator[None]:
    """Undo the writes inside if it raises. After some errors (a full disk) SQLite has already undone the whole
    transaction; the connection's own context manager fails in that case and hides the error."""
    db.execute("SAVEPOINT inner")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK TO inner")
            db.execute("RELEASE inner")
        raise
    db.execute("RELEASE inner")
