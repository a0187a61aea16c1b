"""The journal records the tables before each change, so that changes can be undone when another process commits
first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from ...lifecycle import Event
from ...model import Job
from ..memory.tables import Tables

K = TypeVar("K")
V = TypeVar("V")

#: there was no value
ABSENT: Any = object()


class RowBefore(msgspec.Struct, frozen=True):
    """A job before a change of its row or its events."""

    job_id: str
    job: Job | None
    events: tuple[Event, ...] | None


class WaitBefore(msgspec.Struct, frozen=True):
    """Edges before a change: the jobs that waited for a job (`close`), or the jobs that it waited for (`forget`)."""

    operation: str
    job_id: str
    edges: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


class CellBefore(msgspec.Struct, frozen=True):
    """A value of a small table before a change."""

    table: str
    key: Any
    value: Any


Entry = RowBefore | WaitBefore | CellBefore


class JournaledTable(dict[K, V]):
    """A dictionary that records each value before it changes."""

    def __init__(self, name: str, entries: list[Entry]) -> None:
        super().__init__()
        self._name = name
        self._entries = entries

    def __setitem__(self, key: K, value: V) -> None:
        self._note(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._note(key)
        super().__delitem__(key)

    def pop(self, key: K, *default: Any) -> Any:
        if key in self:
            self._note(key)
        return super().pop(key, *default)

    def update(self, *others: Any, **_: V) -> None:
        for other in others:
            items: Iterable[tuple[K, V]] = other.items() if isinstance(other, Mapping) else other
            for key, value in items:
                self[key] = value

    def setdefault(self, key: K, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def put_back(self, key: K, value: Any) -> None:
        """Set a value, or remove it (`ABSENT`), without a record."""
        if value is ABSENT:
            super().pop(key, None)
        else:
            super().__setitem__(key, value)

    def _note(self, key: K) -> None:
        self._entries.append(CellBefore(self._name, key, self.get(key, ABSENT)))


class Journal:
    """Tables that record their changes, and the records since the last commit."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.small: dict[str, JournaledTable[Any, Any]] = {}
        self.tables = Tables(self._make)
        self.tables.rows.touch = self._touch_row
        self.tables.rows.waits.touch = self._touch_wait
        self._quiet = False

    def clear(self) -> None:
        """The recorded changes are committed."""
        self.entries.clear()

    def undo(self, mark: int = 0) -> None:
        """Undo the changes since the journal had `mark` entries."""
        self._quiet = True
        try:
            rows: dict[str, Job | None] = {}
            for entry in reversed(self.entries[mark:]):
                if isinstance(entry, RowBefore):
                    rows[entry.job_id] = entry.job
                    self._put_events(entry.job_id, entry.events)
                elif isinstance(entry, WaitBefore):
                    self._put_edges(entry)
                else:
                    self.small[entry.table].put_back(entry.key, entry.value)
            self.tables.rows.place(rows)
            self._forget_follow_ups()
        finally:
            self._quiet = False
        del self.entries[mark:]

    def _forget_follow_ups(self) -> None:
        rows = self.tables.rows
        rows.woken.clear()
        rows.freed.clear()
        rows.written.clear()
        rows.waits.over.clear()

    def _make(self, name: str) -> dict[Any, Any]:
        table = self.small[name] = JournaledTable(name, self.entries)
        return table

    def _touch_row(self, job_id: str) -> None:
        rows = self.tables.rows
        events = rows.events.get(job_id)
        self.entries.append(RowBefore(job_id, rows.jobs.get(job_id), None if events is None else tuple(events)))

    def _touch_wait(self, operation: str, job_id: str) -> None:
        if self._quiet:
            return
        waits = self.tables.rows.waits
        if operation == "close":
            entry = WaitBefore(operation, job_id, tuple(waits.open.get(job_id, ())))
        elif operation == "forget":
            on = waits.on[job_id]
            still = tuple(each for each in on if job_id in waits.open.get(each, ()))
            entry = WaitBefore(operation, job_id, on, still)
        else:
            entry = WaitBefore(operation, job_id)
        self.entries.append(entry)

    def _put_events(self, job_id: str, events: tuple[Event, ...] | None) -> None:
        if events is None:
            self.tables.rows.events.pop(job_id, None)
        else:
            self.tables.rows.events[job_id] = list(events)

    def _put_edges(self, entry: WaitBefore) -> None:
        waits = self.tables.rows.waits
        if entry.operation == "add":
            waits.forget(entry.job_id)
        elif entry.operation == "close":
            if entry.edges:
                waits.open[entry.job_id] = dict.fromkeys(entry.edges)
                waits.left.update(entry.edges)
        else:
            waits.on[entry.job_id] = entry.edges
            for each in entry.open:
                waits.open.setdefault(each, {})[entry.job_id] = None
            if entry.open:
                waits.left[entry.job_id] = len(entry.open)
