"""The stored form of `Job` and `Event`. No other module knows it.

A job is kept in up to three strings and a list (the keys are in `lua/prelude.lua`):

- the row: `[[fields for scripts], [head, error, result]]`, replaced as a whole by every change;
- the fixed part: `[[group, key, tags], [the rest]]`, submitted and never changed;
- the part beside the row, because no change may undo it: the holder's progress and checkpoint, and how far the events
  were trimmed. Most jobs have none;
- the events, one entry each.

All are msgpack. `false` stands for None: Lua's tables end at a nil. Each string is a pair: the part that scripts
unpack, and the part that they must not, because they have no type for bytes.

A claim writes only the row and marks it *open*: no script can seal an event. Readers of an open row derive the claim's
event from it, here; the next change of the row writes that event before its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

import msgspec

from ...lifecycle import Chain, Event
from ...model import BLANK, NO_DIGEST, ErrorInfo, Job, Options, Progress
from ..open_claim import claim_body
from ..row_codec import OfOptions, OptionsCodec

#: None as it is stored
_NO = False
_Text = str | bool
_Number = int | bool
_Bytes = bytes | bool

#: the fields for scripts, in the order of `lua/prelude.lua`; then come `open`, the run's limits, and whether a claim
#: found it past its deadline
ROW: Mapping[str, Any] = {
    "status": str,
    "version": int,
    "token": int,
    "session": _Text,
    "lane": int,
    "rank": int,
    "due_ms": int,
    "expires_ms": _Number,
    "settled_ms": _Number,
    "queue": str,
    "parent": _Text,
    "concurrency_key": _Text,
    "unique_key": _Text,
    "starts": int,
    "failures": int,
    "crashes": int,
    "releases": int,
    "losses": int,
    "started_ms": _Number,
    "claimed_ms": _Number,
    "changed_ms": int,
    "extra_ms": int,
    "reason": _Text,
    "priority": int,
}
_MARKS: Mapping[str, Any] = {"open": bool, "run_ms": _Number, "stall_ms": _Number, "grace_ms": int, "late": bool}
_TAIL: Mapping[str, Any] = {"head": bytes, "error": _Text, "result": _Bytes}
_NAMED: Mapping[str, Any] = {"group": _Text, "key": _Text, "tags": list[str]}
_FIXED: Mapping[str, Any] = {
    "id": str,
    "kind": str,
    "name": str,
    "unit": _Text,
    "options": bytes,
    "created_ms": int,
    "payload": bytes,
}
_REPORTED: Mapping[str, Any] = {"progress": _Text, "progress_ms": _Number, "trimmed_seq": int}
_KEPT: Mapping[str, Any] = {"checkpoint": _Bytes, "trimmed_digest": bytes}


def _tuple_of(*parts: Mapping[str, Any]) -> Any:
    return tuple[tuple(kind for part in parts for kind in part.values())]  # type: ignore[misc]


_encode = msgspec.msgpack.Encoder().encode
_decode_row = msgspec.msgpack.Decoder(tuple[_tuple_of(ROW, _MARKS), _tuple_of(_TAIL)]).decode  # type: ignore[misc]
_decode_fixed = msgspec.msgpack.Decoder(tuple[_tuple_of(_NAMED), _tuple_of(_FIXED)]).decode  # type: ignore[misc]
_decode_beside = msgspec.msgpack.Decoder(tuple[_tuple_of(_REPORTED), _tuple_of(_KEPT)]).decode  # type: ignore[misc]
_decode_event = msgspec.msgpack.Decoder(
    tuple[int, int, str | None, str, str, str | None, int, str, str | None, bytes]
).decode
_decode_any = msgspec.msgpack.Decoder().decode
_decode_options = msgspec.msgpack.Decoder(Options).decode
_json = msgspec.json.Encoder()
_decode_error = msgspec.json.Decoder(ErrorInfo).decode
_decode_progress = msgspec.json.Decoder(Progress).decode

_as_tuple = msgspec.structs.astuple
_row_of = itemgetter(*(Job.__struct_fields__.index(name) for name in ROW))
_OPEN = len(ROW)
_ORDER = (*ROW, *_MARKS, *_TAIL, *_NAMED, *_FIXED, *_REPORTED, *_KEPT)
_PLACES = tuple(_ORDER.index(name) for name in Job.__struct_fields__)
_OPTIONS, _ERROR, _PROGRESS, _HEAD = (
    Job.__struct_fields__.index(name) for name in ("options", "error", "progress", "head")
)
_NOTHING_BESIDE = ((_NO, _NO, 0), (_NO, NO_DIGEST))


class RawRow(NamedTuple):
    """A job as it is stored. `row` and `fixed` always exist, `beside` may."""

    row: bytes
    fixed: bytes | None
    beside: bytes | None


def _run_limits(options: Options) -> tuple[Any, ...]:
    """The limits by which a script knows when a run overruns; see `model.expiry`."""
    run_s, stall_s = options.run_timeout_s, options.stall_timeout_s
    return (
        _NO if run_s is None else int(run_s * 1000),
        _NO if stall_s is None else int(stall_s * 1000),
        int(options.grace_s * 1000),
    )


_codec = OptionsCodec(_encode, _decode_options)
_limits = OfOptions(_run_limits)


# -- writing --------------------------------------------------------------------------------------


def row_bytes(job: Job) -> bytes:
    """The row, which a change replaces. The events up to `job.head` are all written, so the row is not open."""
    row = [_NO if value is None else value for value in _row_of(_as_tuple(job))]
    row += (False, *_limits(job.options), False)
    error = _NO if job.error is None else _json.encode(job.error).decode()
    return _encode((row, (job.head, error, _NO if job.result is None else job.result)))


def fixed_bytes(job: Job) -> bytes:
    options = job.options
    named = (_NO if job.group is None else job.group, _NO if job.key is None else job.key, options.tags)
    unit = _NO if job.unit is None else job.unit
    return _encode((named, (job.id, job.kind, job.name, unit, _codec.encode(options), job.created_ms, job.payload)))


def beside_bytes(job: Job) -> bytes | None:
    """The part beside the row; None if there is none."""
    if job.progress_ms is None and job.progress is None and job.checkpoint is None and job.trimmed_seq == 0:
        return None
    reported = (
        _NO if job.progress is None else progress_text(job.progress),
        _NO if job.progress_ms is None else job.progress_ms,
        job.trimmed_seq,
    )
    return _encode((reported, (_NO if job.checkpoint is None else job.checkpoint, job.trimmed_digest)))


def progress_text(progress: Progress) -> str:
    return _json.encode(progress).decode()


def event_bytes(event: Event) -> bytes:
    """An event without its job's id, which is in its key."""
    return _encode(_as_tuple(event)[1:])


def claim_bytes(before: Job) -> bytes | None:
    """The event of the claim that `before` may be under, to be written if its row is still open."""
    if before.session is None or before.claimed_ms is None:
        return None
    return _encode((*_claim_body(before)[1:], before.head))


# -- reading --------------------------------------------------------------------------------------


def job_from(raw: RawRow, chain: Chain) -> Job:
    """A job from its stored form; of an open row, with the head that its claim's event will have. Raises a
    `msgspec.MsgspecError` if something is damaged."""
    if raw.fixed is None:
        raise msgspec.ValidationError("its fixed part is missing")
    row, tail = _decode_row(raw.row)
    named, fixed = _decode_fixed(raw.fixed)
    reported, kept = _NOTHING_BESIDE if raw.beside is None else _decode_beside(raw.beside)
    values = row + tail + named + fixed + reported + kept
    fields = [None if (value := values[place]) is _NO else value for place in _PLACES]
    fields[_OPTIONS] = _codec.decode(cast("bytes", fields[_OPTIONS]))
    if fields[_ERROR] is not None:
        fields[_ERROR] = _decode_error(cast("str", fields[_ERROR]))
    if fields[_PROGRESS] is not None:
        fields[_PROGRESS] = _decode_progress(cast("str", fields[_PROGRESS]))
    job = Job(*fields)  # type: ignore[arg-type]
    if row[_OPEN]:
        job = msgspec.structs.replace(job, head=chain.digest(job.head, _claim_body(job)))
    return job


def is_open(raw: RawRow) -> bool:
    """Whether the event of its claim is not written yet. False for an unreadable row."""
    try:
        row, _ = _decode_row(raw.row)
    except (msgspec.MsgspecError, UnicodeError):
        return False
    return bool(row[_OPEN])


def unclaimed(job: Job, head: bytes) -> Job:
    """Approximately the job before its current claim, for the observer."""
    return msgspec.structs.replace(
        job,
        status="pending",
        version=job.version - 1,
        token=job.token - 1,
        session=None,
        claimed_ms=None,
        lane=1,
        head=head,
    )


def stored_head(raw: RawRow) -> bytes:
    """The digest of the last written event."""
    _, tail = _decode_row(raw.row)
    head: bytes = tail[0]
    return head


def event_from(job_id: str, stored: bytes) -> Event:
    fields: tuple[Any, ...] = (job_id, *_decode_event(stored))
    return Event(*fields)


def _claim_body(job: Job) -> tuple[Any, ...]:
    return claim_body(job.id, job.version, job.claimed_ms, job.session, job.token)


# -- reading damaged rows -------------------------------------------------------------------------


def readable_job(job_id: str, raw: RawRow, chain: Chain) -> tuple[Job, Mapping[str, str]]:
    """A job with harmless values in place of unreadable ones; and each unreadable field with its defect."""
    try:
        job = job_from(raw, chain)
    except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError):
        pass
    else:
        if job.id == job_id:
            return job, {}
        return msgspec.structs.replace(job, id=job_id), {"id": f"the row is that of job {job.id}"}
    damaged: dict[str, str] = {}
    found = {
        # a part that is completely unreadable is reported as the column that nothing else can prove
        **_both("queue", raw.row, {**ROW, **_MARKS}, _TAIL, damaged),
        **_both("payload", raw.fixed, _NAMED, _FIXED, damaged),
    }
    if raw.beside is not None:
        found |= _both("checkpoint", raw.beside, _REPORTED, _KEPT, damaged)
    found.pop("tags", None)
    is_under_claim = found.pop("open", False)
    for mark in _MARKS:
        found.pop(mark, None)
    for name, read in (("options", _decode_options), ("error", _decode_error), ("progress", _decode_progress)):
        if found.get(name) is None:
            continue
        try:
            found[name] = read(found[name])
        except (msgspec.MsgspecError, UnicodeError) as error:
            damaged[name] = f"{error} (stored: {_shown(found.pop(name))})"
    job = msgspec.structs.replace(BLANK, **{**found, "id": job_id})
    if is_under_claim and not {"status", "version", "token", "session", "claimed_ms", "head"} & damaged.keys():
        job = msgspec.structs.replace(job, head=chain.digest(job.head, _claim_body(job)))
    return job, damaged


def readable_event(job_id: str, stored: bytes) -> Event:
    """An event; of a damaged one its readable fields, which no chain accepts."""
    try:
        return event_from(job_id, stored)
    except (msgspec.MsgspecError, UnicodeError):
        pass
    try:
        values = list(_decode_any(stored))
    except (msgspec.MsgspecError, UnicodeError, TypeError):
        values = []
    blank = (0, 0, None, "", "", None, 0, "", None, b"")
    fields: tuple[Any, ...] = (job_id, *values[: len(blank)], *blank[len(values) :])
    return Event(*fields)


def _both(
    part: str, stored: bytes | None, first: Mapping[str, Any], second: Mapping[str, Any], damaged: dict[str, str]
) -> dict[str, Any]:
    """The readable values of a pair."""
    try:
        value = _decode_any(stored or b"")
    except (msgspec.MsgspecError, UnicodeError) as error:
        value = None
        damaged[part] = f"{error} (stored: {_shown(stored)})"
    pair = value if isinstance(value, list) and len(value) == 2 else (None, None)
    read: dict[str, Any] = {}
    for values, kinds in zip(pair, (first, second), strict=True):
        if isinstance(values, list) and len(values) == len(kinds):
            read |= _checked(values, kinds, damaged)
        else:
            damaged.setdefault(part, f"it is not as it was written (stored: {_shown(stored)})")
    return read


def _checked(values: Sequence[Any], kinds: Mapping[str, Any], damaged: dict[str, str]) -> dict[str, Any]:
    valid: dict[str, Any] = {}
    for value, (name, kind) in zip(values, kinds.items(), strict=True):
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            damaged[name] = f"{error} (stored: {_shown(value)})"
        else:
            valid[name] = None if value is _NO and kind is not bool else value
    return valid


def _shown(stored: Any) -> str:
    return (stored.hex() if isinstance(stored, bytes) else str(stored))[:200]
