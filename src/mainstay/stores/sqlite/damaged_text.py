"""Rows with invalid text.

A flipped bit can leave a TEXT value that is not UTF-8. The SQLite wrapper then refuses all rows of the result. So the
result is read again as bytes: intact rows are returned as they are, and a damaged one with replacement characters and
the names of its damaged columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from ...lifecycle import Event
from ...model import Job
from ..omitted_values import MARK, OMITTED_FIELDS
from .sql import Row, all_rows

#: number of the row in the result -> column -> what is wrong with it
Broken = Mapping[int, Mapping[str, str]]

#: columns declared as TEXT
TEXTS = {
    "jobs": frozenset(
        {
            *("id", "kind", "name", "queue", "parent", "unit", "group", "key", "unique_key", "concurrency_key"),
            *("status", "reason", "session", "error", "progress"),
        }
    ),
    "events": frozenset({"job_id", "source", "to", "actor", "reason", "flag", "details"}),
}
_FIELDS = {"jobs": Job.__struct_fields__, "events": Event.__struct_fields__}
_PLAIN = {table: ", ".join(f'"{name}"' for name in fields) for table, fields in _FIELDS.items()}
_BYTES = {
    table: ", ".join(f'CAST("{name}" AS BLOB)' if name in TEXTS[table] else f'"{name}"' for name in fields)
    for table, fields in _FIELDS.items()
}


def read_rows(
    db: apsw.Connection,
    table: str,
    tail: str,
    values: Sequence[Any] = (),
    *,
    more: str = "",
    value_bytes: int | None = None,
) -> tuple[list[Row], Broken]:
    """All columns of a table (and `more`), and the damage found in them. Values of jobs longer than `value_bytes` are
    left out: SQLite knows their length without reading them."""
    try:
        return all_rows(db, f"SELECT {_shortened(_PLAIN[table], value_bytes)}{more} {tail}", values), {}
    except UnicodeDecodeError:
        return _read_bytes(db, table, tail, values, more, value_bytes)


def _shortened(columns: str, value_bytes: int | None) -> str:
    if value_bytes is None:
        return columns
    for name in OMITTED_FIELDS:
        mark = f"CAST(x'{MARK.hex()}' || CAST(length(\"{name}\") AS TEXT) AS BLOB)"
        columns = columns.replace(f'"{name}"', f'iif(length("{name}") > {value_bytes:d}, {mark}, "{name}")')
    return columns


def _read_bytes(
    db: apsw.Connection, table: str, tail: str, values: Sequence[Any], more: str, value_bytes: int | None
) -> tuple[list[Row], Broken]:
    rows: list[Row] = []
    broken: dict[int, Mapping[str, str]] = {}
    for raw in all_rows(db, f"SELECT {_shortened(_BYTES[table], value_bytes)}{more} {tail}", values):
        row = list(raw)
        wrong = {}
        for at, name in enumerate(_FIELDS[table]):
            stored = row[at]
            if name not in TEXTS[table] or not isinstance(stored, bytes):
                continue
            row[at] = stored.decode(errors="replace")
            if row[at].encode() != stored:
                wrong[name] = f"it is not UTF-8 text (stored: {stored[:100].hex()})"
        if wrong:
            broken[len(rows)] = wrong
        rows.append(tuple(row))
    return rows, broken
