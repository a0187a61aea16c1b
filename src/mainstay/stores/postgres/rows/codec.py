"""Rows in and out: `Job` and `Event` as PostgreSQL values.

The server writes a claim alone, and it must not know the key that seals events. So it changes the row and leaves it
`open`: `version` counts an event that is not stored yet. Everything in the claim's event is in the row. A reader of an
open row gets the job as it will be sealed; that is done here and nowhere else. The next change of the row writes the
claim's event with its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ....lifecycle import Chain, Event
from ....model import Job, Options
from ...omitted_values import MARK, OMITTED_FIELDS
from ...open_claim import claim_body
from ...port import NewJob, SealedChange
from ...row_codec import CHANGED, EVENT_FIELDS, JOB_FIELDS, RowCodec, changed_values, expected_progress_ms

_UUIDS = ("id", "parent", "job_id")

#: an untyped record of the driver, or any other row in the same order
Row = Any
Columns = list[Sequence[Any]]


def _read(names: Sequence[str], table: str = "") -> str:
    """Columns to select: ids as text, as the rest of the program has them."""
    dot = f"{table}." if table else ""
    return ", ".join(f'{dot}"{name}"' + ("::text" if name in _UUIDS else "") for name in names)


#: What `job_from` reads. More columns may follow.
JOB_COLUMNS = f'{_read(JOB_FIELDS)}, "open"'
EVENT_COLUMNS = _read(EVENT_FIELDS)
SELECT_JOB = f"SELECT {JOB_COLUMNS} FROM mainstay.jobs"
SELECT_EVENT = f"SELECT {EVENT_COLUMNS} FROM mainstay.events"


def job_columns(table: str, *, value_bytes: int | None = None) -> str:
    """`JOB_COLUMNS` of one of several tables. Values longer than `value_bytes` are left out: the server knows their
    length without reading them."""
    columns = f'{_read(JOB_FIELDS, table)}, {table}."open"'
    if value_bytes is None:
        return columns
    for name in OMITTED_FIELDS:
        value = f'{table}."{name}"'
        mark = f"'\\x{MARK.hex()}'::bytea || convert_to(octet_length({value})::text, 'UTF8')"
        shown = f'CASE WHEN octet_length({value}) > {value_bytes:d} THEN {mark} ELSE {value} END AS "{name}"'
        columns = columns.replace(value, shown)
    return columns


def event_columns(table: str) -> str:
    """`EVENT_COLUMNS` of one of several tables."""
    return _read(EVENT_FIELDS, table)


#: Arguments: `event_arrays`.
INSERT_EVENTS = f"""INSERT INTO mainstay.events ({", ".join(f'"{name}"' for name in EVENT_FIELDS)})
SELECT * FROM unnest(
    $1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::text[],
    $10::text[], $11::bytea[]
)"""
#: Every column of a row, with no open claim. Arguments: `job_values`, then the key of the row.
REWRITE_JOB = f"""UPDATE mainstay.jobs SET "open" = false, {
    ", ".join(f'"{name}" = ${at}' for at, name in enumerate(JOB_FIELDS, 1))
}"""

_CHANGED_REASON = CHANGED.index("reason")
_WIDTH = len(JOB_FIELDS)
_OPEN = _WIDTH
_ID, _REASON, _VERSION, _TOKEN, _SESSION, _CLAIMED, _HEAD = (
    JOB_FIELDS.index(name) for name in ("id", "reason", "version", "token", "session", "claimed_ms", "head")
)
_EVENT_REASON = EVENT_FIELDS.index("reason")

_as_tuple = msgspec.structs.astuple
_ID_FORM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_LIST = re.compile(r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12},)*")


def is_id(text: str) -> bool:
    """Whether a text can be the id of a row. For any other text the server raises an error."""
    return isinstance(text, str) and _ID_FORM.fullmatch(text) is not None


def are_ids(texts: Sequence[str]) -> bool:
    """Whether these are valid ids, and all different."""
    return _ID_LIST.fullmatch(",".join([*texts, ""])) is not None and len(set(texts)) == len(texts)


def stored_ids(ids: Iterable[str]) -> list[str]:
    """Only the valid ids."""
    return [each for each in ids if is_id(each)]


# -- text ----------------------------------------------------------------------------------------

#: PostgreSQL cannot store a zero character, but an error message may have one. This noncharacter escapes it, and
#: itself, so that the text that is read is the text that was sealed.
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
    return msgspec.json.encode(options).decode()


_codec = RowCodec(_encode_options, msgspec.json.Decoder(Options).decode)


def job_from(record: Row, chain: Chain) -> Job:
    """A job from `JOB_COLUMNS`. Raises a `msgspec.MsgspecError` if a value is damaged."""
    return _job(_codec.decoded(record), record, chain)


def readable_job(record: Row, chain: Chain) -> tuple[Job, Mapping[str, str]]:
    """A job from `JOB_COLUMNS`, with harmless values for what cannot be read; and what is wrong, by column."""
    row, damaged = _codec.readable(record)
    return _job(row, record, chain), damaged


def _job(row: list[Any], record: Row, chain: Chain) -> Job:
    row[_REASON] = read_text(row[_REASON])
    if record[_OPEN]:
        # `apply_plain` writes the same event
        body = claim_body(row[_ID], row[_VERSION], row[_CLAIMED], row[_SESSION], row[_TOKEN])
        row[_HEAD] = chain.digest(row[_HEAD], body)
    return Job(*row)


def job_values(job: Job) -> list[Any]:
    """A job as the values of its columns, in the order of the fields; without `open`."""
    values = _codec.values(job)
    values[_REASON] = stored_text(job.reason)
    return values


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
    """For functions that `spread` their columns: a column with the same value in all rows becomes a single value."""
    return [column[:1] if len(column) > 1 and column.count(column[0]) == len(column) else column for column in columns]


def event_arrays(events: Iterable[Event]) -> Columns:
    """Arguments of a function that takes events."""
    return _columns([event_values(event) for event in events], len(EVENT_FIELDS))


def job_arrays(jobs: Sequence[NewJob]) -> Columns:
    """Arguments of a function that takes new jobs."""
    return _columns([job_values(new.job) for new in jobs], _WIDTH)


def count_arrays(tallies: Mapping[tuple[str, str], int], entered: Mapping[str, int]) -> Columns:
    """Arguments of a function that takes counts: what to add to the tallies, and to the rates."""
    moved = [(queue, status, n) for (queue, status), n in tallies.items() if n]
    return [
        [queue for queue, _, _ in moved],
        [status for _, status, _ in moved],
        [n for _, _, n in moved],
        list(entered.keys()),
        list(entered.values()),
    ]


#: The number of values that a row must still have for a change: its id, version, time of progress (None: any), head,
#: and the session and time of its claim.
EXPECTED = 6


def change_arrays(changes: Sequence[SealedChange]) -> Columns:
    """Arguments of `apply_plain`: the expected values, then `CHANGED`."""
    return _columns([_change_values(change) for change in changes], EXPECTED + len(CHANGED))


def _change_values(change: SealedChange) -> list[Any]:
    before, after = change.before, change.after
    changed = changed_values(after)
    if after.reason is not None:
        changed[_CHANGED_REASON] = stored_text(after.reason)
    return [
        after.id,
        before.version,
        expected_progress_ms(change),
        before.head,
        before.session,
        before.claimed_ms,
        *changed,
    ]
