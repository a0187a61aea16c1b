"""Statements with answers, typed as loosely as SQL is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import apsw

Row = tuple[Any, ...]


def marks(columns: Sequence[str]) -> str:
    """The place of each value that is bound.

    >>> marks(["id", "name"])
    '?, ?'
    """
    return ", ".join("?" * len(columns))


def all_rows(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """All rows of an answer."""
    return db.execute(sql, values).fetchall()


def first_row(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Row | None:
    """The first row, if there is one."""
    return db.execute(sql, values).fetchone()


def value(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """The single value of an answer that always has one."""
    row = first_row(db, sql, values)
    assert row is not None, sql
    return row[0]


@contextlib.contextmanager
def savepoint(db: apsw.Connection) -> Iterator[None]:
    """Undo what was done inside if it raises. For some errors (a full disk) SQLite has undone the whole transaction
    by then; the connection's own context manager stumbles over that and hides the error."""
    db.execute("SAVEPOINT inner")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK TO inner")
            db.execute("RELEASE inner")
        raise
    db.execute("RELEASE inner")
