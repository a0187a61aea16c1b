"""Rows in and out: `Job` and `Event` as SQLite values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import apsw
import msgspec

from ...lifecycle import Event
from ...model import Job, Options, Progress
from ...model.job import ErrorInfo
from ..change_check import takes_away
from ..columns import CHANGED
from ..options_codec import OptionsCodec
from ..port import Change
from .damaged_text import read_rows

JOB_FIELDS = Job.__struct_fields__
EVENT_FIELDS = Event.__struct_fields__


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


JOB_COLUMNS = _quoted(JOB_FIELDS)
EVENT_COLUMNS = _quoted(EVENT_FIELDS)
SELECT_JOB = f"SELECT {JOB_COLUMNS} FROM jobs"
INSERT_JOB = f"INSERT INTO jobs ({JOB_COLUMNS}) VALUES ({', '.join('?' * len(JOB_FIELDS))})"
SELECT_EVENT = f"SELECT {EVENT_COLUMNS} FROM events"
INSERT_EVENT = f"INSERT INTO events ({EVENT_COLUMNS}) VALUES ({', '.join('?' * len(EVENT_FIELDS))})"

_changed = itemgetter(*(JOB_FIELDS.index(name) for name in CHANGED))
_CHANGED_ERROR = CHANGED.index("error")
#: The version is the compare-and-swap; and no counter ever shrinks. Without RETURNING, which doubles the cost:
#: whether all were written shows in the number of changes.
UPDATE_JOB = (
    f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in CHANGED)} WHERE id = ? AND version = ? "
    "AND token <= ? AND starts <= ? AND failures <= ? AND crashes <= ? AND releases <= ? AND losses <= ? "
    "AND coalesce(progress_ms, -1) = coalesce(?, progress_ms, -1)"
)
#: A claim changes less, so it writes less.
CLAIM_JOB = (
    "UPDATE jobs SET status = ?, reason = ?, version = ?, token = ?, session = ?, changed_ms = ?, claimed_ms = ?, "
    "expires_ms = ?, head = ?, lane = ? WHERE rowid = ?"
)

_WIDTH = len(JOB_FIELDS)
_OPTIONS, _ERROR, _PROGRESS = (JOB_FIELDS.index(name) for name in ("options", "error", "progress"))
_encode_options = msgspec.msgpack.Encoder().encode
_decode_options = msgspec.msgpack.Decoder(Options).decode
_json = msgspec.json.Encoder()
_decode_error = msgspec.json.Decoder(ErrorInfo).decode
_decode_progress = msgspec.json.Decoder(Progress).decode
_as_tuple = msgspec.structs.astuple

Values = tuple[Any, ...]


_codec = OptionsCodec(_encode_options, _decode_options)


#: an event as the values of its columns
event_values = _as_tuple


def job_values(job: Job) -> Values:
    """A job as the values of its columns."""
    values = list(_as_tuple(job))
    values[_OPTIONS] = _codec.encode(job.options)
    if job.error is not None:
        values[_ERROR] = _json.encode(job.error).decode()
    if job.progress is not None:
        values[_PROGRESS] = progress_text(job)
    return tuple(values)


def change_values(change: Change) -> list[Any]:
    """Bindings of `UPDATE_JOB`."""
    before, after = change.before, change.after
    values = list(_changed(_as_tuple(after)))
    if after.error is not None:
        values[_CHANGED_ERROR] = _json.encode(after.error).decode()
    counters = (after.token, after.starts, after.failures, after.crashes, after.releases, after.losses)
    seen_ms = (-1 if before.progress_ms is None else before.progress_ms) if takes_away(change) else None
    values += (after.id, before.version, *counters, seen_ms)
    return values


def job_from(values: Values) -> Job:
    """A job from the values of its columns; more may follow them. Raises a `msgspec.MsgspecError` if one is damaged."""
    row = list(values[:_WIDTH])
    row[_OPTIONS] = _codec.decode(row[_OPTIONS])
    if row[_ERROR] is not None:
        row[_ERROR] = _decode_error(row[_ERROR])
    if row[_PROGRESS] is not None:
        row[_PROGRESS] = _decode_progress(row[_PROGRESS])
    return Job(*row)


def readable_job(values: Values) -> tuple[Job, Mapping[str, str]]:
    """A job from the values of its columns, with harmless stand-ins for what cannot be read, named."""
    row = list(values[:_WIDTH])
    damaged: dict[str, str] = {}
    readers = {
        _OPTIONS: (_decode_options, Options()),
        _ERROR: (_decode_error, None),
        _PROGRESS: (_decode_progress, None),
    }
    for at, (read, instead) in readers.items():
        if row[at] is None:
            continue
        try:
            row[at] = read(row[at])
        except (msgspec.MsgspecError, UnicodeError) as error:
            stored = row[at].hex() if isinstance(row[at], bytes) else str(row[at])
            damaged[JOB_FIELDS[at]] = f"{error} (stored: {stored[:200]})"
            row[at] = instead
    return Job(*row), damaged


def events_of(db: apsw.Connection, job_id: str, *, after: int, limit: int) -> list[Event]:
    tail = "FROM events WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?"
    rows, _ = read_rows(db, "events", tail, (job_id, after, limit))
    return [Event(*row) for row in rows]


def job_by_id(db: apsw.Connection, job_id: str) -> Job | None:
    found = readable_jobs(db, "FROM jobs WHERE id = ?", (job_id,))
    return found[0] if found else None


def readable_jobs(
    db: apsw.Connection, tail: str, values: Sequence[Any], *, value_bytes: int | None = None
) -> list[Job]:
    """Jobs to look at or to move on, with harmless stand-ins for what cannot be read."""
    rows, _ = read_rows(db, "jobs", tail, values, value_bytes=value_bytes)
    return [readable_job(row)[0] for row in rows]


def progress_text(job: Job) -> str | None:
    return None if job.progress is None else _json.encode(job.progress).decode()
