"""Rows in and out: `Job` and `Event` as SQLite values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import msgspec

from ...lifecycle import Event
from ...model import Job, Options
from ..port import SealedChange
from ..row_codec import CHANGED, EVENT_FIELDS, JOB_FIELDS, RowCodec, changed_values, expected_progress_ms
from .damaged_text import read_rows
from .sql import marks


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


JOB_COLUMNS = _quoted(JOB_FIELDS)
EVENT_COLUMNS = _quoted(EVENT_FIELDS)
INSERT_JOB = f"INSERT INTO jobs ({JOB_COLUMNS}) VALUES ({marks(JOB_FIELDS)})"
SELECT_EVENT = f"SELECT {EVENT_COLUMNS} FROM events"
INSERT_EVENT = f"INSERT INTO events ({EVENT_COLUMNS}) VALUES ({marks(EVENT_FIELDS)})"
#: Every column of a row. Values: `job_values`, then the row id.
REWRITE_JOB = "UPDATE jobs SET " + ", ".join(f'"{name}" = ?' for name in JOB_FIELDS) + " WHERE rowid = ?"
#: The version is the compare-and-swap, and no counter ever shrinks. Without RETURNING, which doubles the cost: the
#: number of changes shows whether all rows were written.
UPDATE_JOB = (
    f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in CHANGED)} WHERE id = ? AND version = ? "
    "AND token <= ? AND starts <= ? AND failures <= ? AND crashes <= ? AND releases <= ? AND losses <= ? "
    "AND coalesce(progress_ms, -1) = coalesce(?, progress_ms, -1)"
)
#: A claim changes fewer columns, so it writes fewer.
CLAIM_JOB = (
    "UPDATE jobs SET status = ?, reason = ?, version = ?, token = ?, session = ?, changed_ms = ?, claimed_ms = ?, "
    "expires_ms = ?, head = ?, lane = ? WHERE rowid = ?"
)

Values = Sequence[Any]

_codec = RowCodec(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Options).decode)

#: a job, and an event, as the values of its columns
job_values = _codec.values
event_values = msgspec.structs.astuple


def change_values(change: SealedChange) -> list[Any]:
    """The values of `UPDATE_JOB`."""
    after = change.after
    values = changed_values(after)
    counters = (after.token, after.starts, after.failures, after.crashes, after.releases, after.losses)
    values += (after.id, change.before.version, *counters, expected_progress_ms(change))
    return values


def job_from(values: Values) -> Job:
    """A job from the values of its columns; further values may follow. Raises a `msgspec.MsgspecError` if one is
    damaged."""
    return Job(*_codec.decoded(values))


def readable_job(values: Values) -> tuple[Job, Mapping[str, str]]:
    """A job from the values of its columns, with harmless values for what cannot be read; and by column, what is
    wrong."""
    row, damaged = _codec.readable(values)
    return Job(*row), damaged


def events_of(db: apsw.Connection, job_id: str, *, after: int, limit: int) -> list[Event]:
    tail = "FROM events WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?"
    rows, _ = read_rows(db, "events", tail, (job_id, after, limit))
    return [Event(*row) for row in rows]


def job_by_id(db: apsw.Connection, job_id: str) -> Job | None:
    jobs = readable_jobs(db, "FROM jobs WHERE id = ?", (job_id,))
    return jobs[0] if jobs else None


def readable_jobs(
    db: apsw.Connection, tail: str, values: Sequence[Any], *, value_bytes: int | None = None
) -> list[Job]:
    """Jobs to show or to move on, with harmless values for what cannot be read."""
    rows, _ = read_rows(db, "jobs", tail, values, value_bytes=value_bytes)
    return [readable_job(row)[0] for row in rows]
