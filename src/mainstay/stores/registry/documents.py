"""What a registry keeps, as documents: one JSON object per line.

Every line says what it is by `t`; its other fields are named as those of the structs. What this version of Mainstay
does not know of a document is kept beside the value and written again with it, so that an older program may share a
registry with a newer one.

    job      a whole row            change   some fields of a row     gone      no such row any more
    event    one more event         drop     events that were trimmed
    wait     who waits for whom     wait_over, wait_gone
    key, refusals, lead, queue, limit, schedule, tick     a value of a small table; with "gone": true it is removed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

import msgspec

from ...lifecycle import Event
from ...model import BLANK, Job, Leadership, Options, QueueSettings, Schedule
from ..port import Key, RefusedWrite

Line = dict[str, Any]
#: what is in a document and not in the value made of it
Extras = dict[str, Any]

_JOB_FIELDS = frozenset(Job.__struct_fields__)
_EVENT_FIELDS = frozenset(Event.__struct_fields__)
_BLANK: Line = msgspec.to_builtins(BLANK)
#: fields whose values are structs themselves, which a newer program may have given more
_REPLACED = ("error", "progress")
_NESTED = ("options", *_REPLACED)
_known: dict[bytes, tuple[Options, bool]] = {}
_MOST_KNOWN = 256

_HINTS = get_type_hints(Job)
_Fields: Any = msgspec.defstruct(
    "_Fields",
    [(name, _HINTS[name] | msgspec.UnsetType, msgspec.UNSET) for name in Job.__struct_fields__],
    kw_only=True,
)


def job_line(job: Job, extras: Extras) -> Line:
    """A whole row."""
    return {"t": "job", **msgspec.to_builtins(job), **extras}


def change_line(before: Job, after: Job) -> Line | None:
    """What is different; None if nothing is."""
    changed = [name for name in Job.__struct_fields__ if getattr(before, name) != getattr(after, name)]
    if not changed:
        return None
    return {"t": "change", "id": after.id, **{name: msgspec.to_builtins(getattr(after, name)) for name in changed}}


def read_job(line: Line) -> tuple[Job, Extras]:
    options, exact = _options(line["options"])
    # a program that is older than a field left it out
    job = msgspec.convert({**_BLANK, **line, "options": options}, Job)
    extras = _extras(line, job, _REPLACED)
    return job, extras if exact else {**extras, "options": line["options"]}


def read_change(line: Line, before: Job, extras: Extras) -> tuple[Job, Extras]:
    found = msgspec.convert(line, _Fields)
    fields = {
        name: value for name in line if name in _JOB_FIELDS and (value := getattr(found, name)) is not msgspec.UNSET
    }
    after = msgspec.structs.replace(before, **fields)
    kept = {name: value for name, value in extras.items() if name not in line}
    return after, {**kept, **_extras(line, after, _NESTED)}


def _options(raw: Any) -> tuple[Options, bool]:
    """Options, and whether that is all of them. Jobs submitted alike have the same, so the last few are remembered."""
    text = msgspec.json.encode(raw)
    if (known := _known.get(text)) is None:
        options = msgspec.convert(raw, Options)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        known = _known[text] = (options, _as_read(options) == raw)
    return known


def _extras(line: Line, job: Job, nested: Iterable[str]) -> Extras:
    found = {name: line[name] for name in line.keys() - _JOB_FIELDS if name != "t"}
    for name in nested:
        if line.get(name) is not None and _as_read(getattr(job, name)) != line[name]:
            found[name] = line[name]
    return found


def _as_read(value: Any) -> Any:
    """As it would be read from a line: tuples are lists there."""
    return msgspec.json.decode(msgspec.json.encode(value))


def event_line(event: Event) -> Line:
    return {"t": "event", **msgspec.to_builtins(event)}


def read_event(line: Line) -> Event:
    return msgspec.convert(line, Event)


# small tables --------------------------------------------------------------------------------------


class Small(msgspec.Struct, frozen=True):
    """How the values of one small table are written and read."""

    table: str
    t: str
    names: Callable[[Any], Line]
    """the fields that name a value, from its key in the table"""
    body: Callable[[Any], Line]
    """the other fields, from the value"""
    key: Callable[[Line], Any]
    value: Callable[[Line], Any]

    def line(self, key: Any, value: Any, extras: Mapping[str, Any]) -> Line:
        return {"t": self.t, **self.names(key), **self.body(value), **extras}

    def gone(self, key: Any) -> Line:
        return {"t": self.t, **self.names(key), "gone": True}

    def read(self, line: Line) -> tuple[Any, Extras]:
        value = self.value(line)
        known = self.line(self.key(line), value, {})
        return value, {name: found for name, found in line.items() if name not in known}


def _struct(kind: Any, *, but: str = "") -> tuple[Callable[[Any], Line], Callable[[Line], Any]]:
    def body(value: Any) -> Line:
        found: Line = msgspec.to_builtins(value)
        found.pop(but, None)
        return found

    return body, lambda line: msgspec.convert(line, kind)


def _named(kind: Any) -> tuple[Callable[[Any], Line], Callable[[Line], Any]]:
    """A struct whose `name` is the key; a line has it as its id."""
    body, _ = _struct(kind, but="name")
    return body, lambda line: msgspec.convert({**line, "name": line["id"]}, kind)


def _id_of(line: Line) -> str:
    found: str = line["id"]
    return found


_queue, _read_queue = _named(QueueSettings)
_schedule, _read_schedule = _named(Schedule)
_lead, _read_lead = _named(Leadership)


def _key_body(value: tuple[Key, str]) -> Line:
    key, job_id = value
    return {"content": msgspec.to_builtins(key.content), "until_ms": key.until_ms, "job": job_id}


SMALL = {
    small.t: small
    for small in (
        Small(
            "keys",
            "key",
            lambda key: {"scope": key[0], "name": key[1]},
            _key_body,
            lambda line: (line["scope"], line["name"]),
            lambda line: (msgspec.convert(line, Key), line["job"]),
        ),
        Small(
            "refusals",
            "refusals",
            lambda key: {"id": key},
            lambda value: {"refused": msgspec.to_builtins(list(value.values()))},
            _id_of,
            lambda line: {found.token: found for found in msgspec.convert(line["refused"], list[RefusedWrite])},
        ),
        Small("leads", "lead", lambda key: {"id": key}, _lead, _id_of, _read_lead),
        Small("queues", "queue", lambda key: {"id": key}, _queue, _id_of, _read_queue),
        Small(
            "limits", "limit", lambda key: {"id": key}, lambda most: {"most": most}, _id_of, lambda line: line["most"]
        ),
        Small("schedules", "schedule", lambda key: {"id": key}, _schedule, _id_of, _read_schedule),
        Small(
            "ticks",
            "tick",
            lambda key: {"id": key[0], "at_ms": key[1]},
            lambda _: {},
            lambda line: (line["id"], line["at_ms"]),
            lambda _: None,
        ),
    )
}
BY_TABLE = {small.table: small for small in SMALL.values()}
