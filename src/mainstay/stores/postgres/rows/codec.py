"""Rows in and out: `Job` and `Event` as PostgreSQL values.

A claim is written by the server alone, which must not know the key that seals events. So it changes the row and leaves
it `open`: `version` counts an event that is not there yet. Whoever reads an open row gets the job as it will be sealed,
because everything in the claim's event stands in the row; that is done here and nowhere else. The next change of the
row writes the claim's event with its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from ....lifecycle import Chain, Event
from ....model import Job, Options, Progress
from ....model.job import ErrorInfo
from ...change_check import takes_away
from ...columns import CHANGED
from ...omitted_values import MARK, VALUES
from ...open_claim import claim_body
from ...options_codec import OptionsCodec
from ...port import Change, NewJob

JOB_FIELDS = Job.__struct_fields__
EVENT_FIELDS = Event.__struct_fields__
_UUIDS = ("id", "parent", "job_id")

#: a record of the driver, which has no types; or any other row in the same order
Row = Any
Columns = list[Sequence[Any]]


def _read(names: Sequence[str], table: str = "") -> str:
    """Columns to be read: ids as text, which is how everybody else writes them."""
    dot = f"{table}." if table else ""
    return ", ".join(f'{dot}"{name}"' + ("::text" if name in _UUIDS else "") for name in names)


#: What `job_from` reads. More columns may follow.
JOB_COLUMNS = f'{_read(JOB_FIELDS)}, "open"'
EVENT_COLUMNS = _read(EVENT_FIELDS)
SELECT_JOB = f"SELECT {JOB_COLUMNS} FROM mainstay.jobs"
SELECT_EVENT = f"SELECT {EVENT_COLUMNS} FROM mainstay.events"


def job_columns(table: str, *, value_bytes: int | None = None) -> str:
    """`JOB_COLUMNS` of one table among several. Longer values than `value_bytes` are left out: the server knows their
    length without reading them."""
    columns = f'{_read(JOB_FIELDS, table)}, {table}."open"'
    if value_bytes is None:
        return columns
    for name in VALUES:
        value = f'{table}."{name}"'
        mark = f"'\\x{MARK.hex()}'::bytea || convert_to(octet_length({value})::text, 'UTF8')"
        shown = f'CASE WHEN octet_length({value}) > {value_bytes:d} THEN {mark} ELSE {value} END AS "{name}"'
        columns = columns.replace(value, shown)
    return columns


def event_columns(table: str) -> str:
    """`EVENT_COLUMNS` of one table among several."""
    return _read(EVENT_FIELDS, table)


#: Arguments: `event_arrays`.
INSERT_EVENTS = f"""INSERT INTO mainstay.events ({", ".join(f'"{name}"' for name in EVENT_FIELDS)})
SELECT * FROM unnest(
    $1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::text[],
    $10::text[], $11::bytea[]
)"""
#: Every column of a row, with no claim left open. Arguments: `job_values`, and then what names the row.
REWRITE_JOB = f"""UPDATE mainstay.jobs SET "open" = false, {
    ", ".join(f'"{name}" = ${at}' for at, name in enumerate(JOB_FIELDS, 1))
}"""

_changed = itemgetter(*(JOB_FIELDS.index(name) for name in CHANGED))
_CHANGED_ERROR, _CHANGED_REASON = CHANGED.index("error"), CHANGED.index("reason")

_WIDTH = len(JOB_FIELDS)
_OPEN = _WIDTH
_ID, _OPTIONS, _REASON, _VERSION, _TOKEN, _SESSION, _CLAIMED, _ERROR, _HEAD, _PROGRESS = (
    JOB_FIELDS.index(name)
    for name in (
        "id",
        "options",
        "reason",
        "version",
        "token",
        "session",
        "claimed_ms",
        "error",
        "head",
        "progress",
    )
)
_EVENT_REASON = EVENT_FIELDS.index("reason")

_json = msgspec.json.Encoder()
_decode_options = msgspec.json.Decoder(Options).decode
_decode_error = msgspec.json.Decoder(ErrorInfo).decode
_decode_progress = msgspec.json.Decoder(Progress).decode
_as_tuple = msgspec.structs.astuple
_ID_FORM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_LIST = re.compile(r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12},)*")


def is_id(text: str) -> bool:
    """Whether a text can be the id of a stored row. What cannot is not there; the server would call it an error."""
    return isinstance(text, str) and _ID_FORM.fullmatch(text) is not None


def are_ids(texts: Sequence[str]) -> bool:
    """Whether these can be the ids of as many different rows."""
    return _ID_LIST.fullmatch(",".join([*texts, ""])) is not None and len(set(texts)) == len(texts)


def stored_ids(ids: Iterable[str]) -> list[str]:
    """Those that can be ids."""
    return [each for each in ids if is_id(each)]


# -- text ----------------------------------------------------------------------------------------

#: PostgreSQL stores no zero character, and an error message may well have one. A character that never stands for
#: anything says so instead, and for itself, so that what is read is what was sealed.
_MARK = "\ufdd0"


def stored_text(text: str | None) -> str | None:
    if text is None or ("\0" not in text and _MARK not in text):
        return text
    return text.replace(_MARK, f"{_MARK}1").replace("\0", f"{_MARK}0")


def read_text(text: str | None) -> str | None:
    if text is None or _MARK not in text:
        return text
    return text.replace(f"{_MARK}0", "\0").replace(f"{_MARK}1", _MARK)


# -- jobs ----------------------------------------------------------------------------------------


def _encode_options(options: Options) -> str:
    return _json.encode(options).decode()


_codec = OptionsCodec(_encode_options, _decode_options)


def job_from(record: Row, chain: Chain) -> Job:
    """A job from `JOB_COLUMNS`. Raises a `msgspec.MsgspecError` if a value is damaged."""
    row = list(record[:_WIDTH])
    row[_OPTIONS] = _codec.decode(row[_OPTIONS])
    if row[_ERROR] is not None:
        row[_ERROR] = _decode_error(row[_ERROR])
    if row[_PROGRESS] is not None:
        row[_PROGRESS] = _decode_progress(row[_PROGRESS])
    if row[_REASON] is not None:
        row[_REASON] = read_text(row[_REASON])
    if record[_OPEN]:
        row[_HEAD] = chain.digest(row[_HEAD], _claim_body(row))
    return Job(*row)


def readable_job(record: Row, chain: Chain) -> tuple[Job, Mapping[str, str]]:
    """A job from `JOB_COLUMNS`, with harmless stand-ins for what cannot be read, named."""
    row = list(record[:_WIDTH])
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
            damaged[JOB_FIELDS[at]] = f"{error} (stored: {str(row[at])[:200]})"
            row[at] = instead
    row[_REASON] = read_text(row[_REASON])
    if record[_OPEN]:
        row[_HEAD] = chain.digest(row[_HEAD], _claim_body(row))
    return Job(*row), damaged


def _claim_body(row: Sequence[Any]) -> tuple[Any, ...]:
    # `write_changes` makes the same of it
    return claim_body(row[_ID], row[_VERSION], row[_CLAIMED], row[_SESSION], row[_TOKEN])


def job_values(job: Job) -> list[Any]:
    """A job as the values of its columns, in the order of the fields; `open` is not among them."""
    values = list(_as_tuple(job))
    values[_OPTIONS] = _codec.encode(job.options)
    values[_REASON] = stored_text(job.reason)
    values[_ERROR] = error_text(job)
    values[_PROGRESS] = progress_text(job)
    return values


def error_text(job: Job) -> str | None:
    return None if job.error is None else _json.encode(job.error).decode()


def progress_text(job: Job) -> str | None:
    return None if job.progress is None else _json.encode(job.progress).decode()


# -- events --------------------------------------------------------------------------------------


def event_values(event: Event) -> tuple[Any, ...]:
    values = _as_tuple(event)
    if event.reason is None or event.reason == (reason := stored_text(event.reason)):
        return values
    return (*values[:_EVENT_REASON], reason, *values[_EVENT_REASON + 1 :])


def event_from(record: Row) -> Event:
    """An event from `EVENT_COLUMNS`."""
    reason = record[_EVENT_REASON]
    if reason is None or _MARK not in reason:
        return Event(*record)
    row = list(record)
    row[_EVENT_REASON] = read_text(reason)
    return Event(*row)


# -- many at a time: one array per column ----------------------------------------------------------


def _columns(rows: Sequence[Sequence[Any]], width: int) -> Columns:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def spare(columns: Columns) -> Columns:
    """For functions that `spread` their columns: one that is the same in all rows comes as a single value."""
    return [column[:1] if len(column) > 1 and column.count(column[0]) == len(column) else column for column in columns]


def event_arrays(events: Iterable[Event]) -> Columns:
    """Arguments of a function that takes events."""
    return _columns([event_values(event) for event in events], len(EVENT_FIELDS))


def job_arrays(jobs: Sequence[NewJob]) -> Columns:
    """Arguments of a function that takes new jobs."""
    return _columns([job_values(new.job) for new in jobs], _WIDTH)


#: What a row must still be like for a change of it to be written: its id, the version its caller saw, the progress its
#: caller must have seen (None: any), the digest of what it saw last, and the claim it saw: by whom, and when.
SEEN = 6


def change_arrays(changes: Sequence[Change]) -> Columns:
    """Arguments of `write_changes`: what must still be so, then `CHANGED`."""
    return _columns([_change_values(change) for change in changes], SEEN + len(CHANGED))


def _change_values(change: Change) -> list[Any]:
    before, after = change.before, change.after
    seen_ms = (-1 if before.progress_ms is None else before.progress_ms) if takes_away(change) else None
    values = [
        after.id,
        before.version,
        seen_ms,
        before.head,
        before.session,
        before.claimed_ms,
        *_changed(_as_tuple(after)),
    ]
    if after.error is not None:
        values[SEEN + _CHANGED_ERROR] = error_text(after)
    if after.reason is not None:
        values[SEEN + _CHANGED_REASON] = stored_text(after.reason)
    return values
