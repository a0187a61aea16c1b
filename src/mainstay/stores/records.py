"""The record codec: how the records of the small tables are stored, declared once for every engine.

A field that an engine selects or changes by itself has a column of its own (in Redis: a field of a hash). All other
fields are one JSON object in the column `more`. So a new field of a session or a queue needs no migration and no
statement, only its line in `model.records`. Programs of an older version do not write it and do not see it.

The memory store keeps records as they are; the registry stores each as one document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ..model import QueueSettings, Schedule, Session

R = TypeVar("R", bound=msgspec.Struct)

#: the column of the fields that have none of their own; NULL: all have their defaults
MORE = "more"

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _same(text: str) -> str:
    return text


class RecordTable(Generic[R]):
    """The records of one table.

    `columns` are in the order in which values are bound and read; the first is the key. Fields that are `apart` are
    stored by the adapter in its own way.

    >>> QUEUES.values(QueueSettings(name="mail", paused=True, set_by="ann"))
    ['mail', True, None, 'ann', None, None]
    >>> QUEUES.read(["mail", 1, None, "ann", None, None])
    QueueSettings(name='mail', paused=True, reason=None, set_by='ann', set_ms=None)
    """

    def __init__(self, kind: type[R], *columns: str, apart: Sequence[str] = ()) -> None:
        self._kind = kind
        self._rest = [name for name in kind.__struct_fields__ if name not in columns and name not in apart]
        self.columns = columns
        self.names = ", ".join(columns)
        """as a statement lists them"""

    def values(self, record: R, text: Callable[[str], str] = _same) -> list[Any]:
        """The values of `columns`. `text` encodes text for the engine; a key is stored as it is."""
        key, *others = (self._more(record) if name == MORE else getattr(record, name) for name in self.columns)
        return [key, *(text(value) if isinstance(value, str) else value for value in others)]

    def read(
        self, row: Sequence[Any], apart: Mapping[str, Any] | None = None, *, text: Callable[[str], str] = _same
    ) -> R:
        """A record from `columns` and the fields that the adapter stores apart. A number may come as text."""
        key, *others = row
        values = (key, *(text(value) if isinstance(value, str) else value for value in others))
        fields = {name: value for name, value in zip(self.columns, values, strict=True) if value is not None}
        found = {**_decoded(fields.pop(MORE, None)), **fields, **(apart or {})}
        return msgspec.convert(found, self._kind, strict=False)

    def changed(self, before: R, after: R) -> dict[str, Any]:
        """The columns that differ, without `more`: a newer program may have added fields to it."""
        own = (name for name in self.columns if name != MORE)
        return {name: getattr(after, name) for name in own if getattr(before, name) != getattr(after, name)}

    def _more(self, record: R) -> str | None:
        found = {name: getattr(record, name) for name in self._rest}
        return msgspec.json.encode(found).decode() if found else None


def _decoded(text: str | None) -> dict[str, Any]:
    """Damaged text counts as empty: it must not hide the session."""
    try:
        return _decode(text) if text else {}
    except msgspec.MsgspecError:
        return {}


#: the fields that a beat reads, without the rest of the record
DRAINING = ("draining_ms", "draining_by")
SESSIONS = RecordTable(
    Session,
    "id",
    "worker",
    "host",
    "pid",
    "started_ms",
    "beat_ms",
    "lease_s",
    "dead",
    "supervisor",
    *DRAINING,
    MORE,
    apart=["offer"],
)
QUEUES = RecordTable(QueueSettings, "name", "paused", "reason", "set_by", "set_ms", MORE)
#: a store does not read `spec`
SCHEDULES = RecordTable(Schedule, "name", "spec", "paused", "last_tick_ms")
