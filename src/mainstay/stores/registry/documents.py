"""The documents of a registry: one JSON object per line.

The field `t` is the kind of a document; its other fields have the names of the structs. Fields that this version of
Mainstay does not know are kept beside the value and written again with it, so that an older program can share a
registry with a newer one.

    job      a whole row            change   some fields of a row     gone      the row was removed
    event    one more event         drop     events that were trimmed
    wait     which jobs a job waits for      wait_over, wait_gone
    key, refusals, marks, lead, queue, limit, schedule, tick
                                    a value of a small table; with "gone": true it is removed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

import msgspec

from ...lifecycle import Event
from ...model import BLANK, Job, Leadership, Options, QueueSettings, Schedule
from ..port import Key, RefusedWrite

Line = dict[str, Any]
#: fields of a document that are not in its value
Extras = dict[str, Any]

_JOB_FIELDS = frozenset(Job.__struct_fields__)
_EVENT_FIELDS = frozenset(Event.__struct_fields__)
_BLANK: Line = msgspec.to_builtins(BLANK)
#: fields whose values are structs, to which a newer program may have added fields
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
    """The fields that differ; None if none does."""
    changed = [name for name in Job.__struct_fields__ if getattr(before, name) != getattr(after, name)]
    if not changed:
        return None
    return {"t": "change", "id": after.id, **{name: msgspec.to_builtins(getattr(after, name)) for name in changed}}


def read_job(line: Line) -> tuple[Job, Extras]:
    options, exact = _options(line["options"])
    # a program from before a field was added leaves it out
    job = msgspec.convert({**_BLANK, **line, "options": options}, Job)
    extras = _extras(line, job, _REPLACED)
    return job, extras if exact else {**extras, "options": line["options"]}


def read_change(line: Line, before: Job, extras: Extras) -> tuple[Job, Extras]:
    changed = msgspec.convert(line, _Fields)
    fields = {
        name: value for name in line if name in _JOB_FIELDS and (value := getattr(changed, name)) is not msgspec.UNSET
    }
    after = msgspec.structs.replace(before, **fields)
    kept = {name: value for name, value in extras.items() if name not in line}
    return after, {**kept, **_extras(line, after, _NESTED)}


def _options(raw: Any) -> tuple[Options, bool]:
    """Options, and whether they are complete. Similar jobs have the same options, so the last few are remembered."""
    text = msgspec.json.encode(raw)
    if (known := _known.get(text)) is None:
        options = msgspec.convert(raw, Options)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        known = _known[text] = (options, _as_read(options) == raw)
    return known


def _extras(line: Line, job: Job, nested: Iterable[str]) -> Extras:
    extras = {name: line[name] for name in line.keys() - _JOB_FIELDS if name != "t"}
    for name in nested:
        if line.get(name) is not None and _as_read(getattr(job, name)) != line[name]:
            extras[name] = line[name]
    return extras


def _as_read(value: Any) -> Any:
    """A value as it is read from a line, where tuples are lists."""
    return msgspec.json.decode(msgspec.json.encode(value))


def event_line(event: Event) -> Line:
    return {"t": "event", **msgspec.to_builtins(event)}


def read_event(line: Line) -> Event:
    return msgspec.convert(line, Event)


# small tables --------------------------------------------------------------------------------------


class TableCodec(msgspec.Struct, frozen=True):
    """Writes and reads the values of one small table."""

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
        return value, {name: field for name, field in line.items() if name not in known}


def _by_name(table: str, t: str, kind: type[msgspec.Struct]) -> TableCodec:
    """Of structs whose `name` is the key; a line has it as its id."""

    def body(value: Any) -> Line:
        fields: Line = msgspec.to_builtins(value)
        del fields["name"]
        return fields

    return TableCodec(table, t, _as_id, body, _id_of, lambda line: msgspec.convert({**line, "name": line["id"]}, kind))


def _as_id(key: str) -> Line:
    return {"id": key}


def _id_of(line: Line) -> str:
    key: str = line["id"]
    return key


def _key_body(value: tuple[Key, str]) -> Line:
    key, job_id = value
    return {"content": msgspec.to_builtins(key.content), "until_ms": key.until_ms, "job": job_id}


def _read_marks(line: Line) -> dict[str, tuple[tuple[str, int], ...]]:
    return dict(msgspec.convert(line["claims"], list[tuple[str, tuple[tuple[str, int], ...]]]))


CODECS = {
    codec.t: codec
    for codec in (
        TableCodec(
            "keys",
            "key",
            lambda key: {"scope": key[0], "name": key[1]},
            _key_body,
            lambda line: (line["scope"], line["name"]),
            lambda line: (msgspec.convert(line, Key), line["job"]),
        ),
        TableCodec(
            "refusals",
            "refusals",
            _as_id,
            lambda value: {"refused": msgspec.to_builtins(list(value.values()))},
            _id_of,
            lambda line: {write.token: write for write in msgspec.convert(line["refused"], list[RefusedWrite])},
        ),
        # a list, because the order of the marks counts
        TableCodec(
            "marks",
            "marks",
            _as_id,
            lambda value: {"claims": msgspec.to_builtins(list(value.items()))},
            _id_of,
            _read_marks,
        ),
        _by_name("leads", "lead", Leadership),
        _by_name("queues", "queue", QueueSettings),
        TableCodec("limits", "limit", _as_id, lambda most: {"most": most}, _id_of, lambda line: line["most"]),
        _by_name("schedules", "schedule", Schedule),
        TableCodec(
            "ticks",
            "tick",
            lambda key: {"id": key[0], "at_ms": key[1]},
            lambda _: {},
            lambda line: (line["id"], line["at_ms"]),
            lambda _: None,
        ),
    )
}
BY_TABLE = {codec.table: codec for codec in CODECS.values()}
