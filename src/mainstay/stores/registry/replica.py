"""A copy of the whole registry in memory, at one number of its log.

Operations run on it as on any memory store. Their effects are then recorded as documents (`effects`), never the
operation itself: two versions of Mainstay may decide differently, but they must agree about each decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...clock import Clock
from ...lifecycle import Chain, Event
from ...model import Job, Lane
from ..bounds import RATE_MINUTES
from ..change_check import falls_due, topics
from ..memory import MemoryStore
from ..port import Written
from ..routes import EVERYBODY
from . import documents
from .documents import BY_TABLE, CODECS, Extras, Line
from .journal import ABSENT, Journal, RowBefore, WaitBefore

#: lines that describe their file, not the registry
HEADERS = frozenset({"commit", "snapshot"})


class Replica:
    """The state that a process knows. `store` reads and decides; its changes are then committed (`won`) or undone."""

    def __init__(self, clock: Clock, chain: Chain, *, clock_name: str) -> None:
        self.number = 0
        """the last commit in it"""
        self.journal = Journal()
        self.tables = self.journal.tables
        self._written: list[Written] = []
        self._woken: Counter[str] = Counter()
        self.store = MemoryStore(clock, chain, tables=self.tables, notify=self._collect_woken)
        self.store.observer = self._collect_written
        self._clock = clock
        self._clock_name = clock_name
        self._extras: dict[tuple[str, Any], Extras] = {}
        self._strangers: dict[tuple[str, str], Line] = {}
        """documents of unknown kinds"""
        self._moves: dict[int, Counter[str]] = {}

    @property
    def event_count(self) -> int:
        return sum(len(events) for events in self.tables.rows.events.values())

    # effects of operations --------------------------------------------------------------------------

    def effects(self) -> list[Line]:
        """The changes since the last commit."""
        first: dict[str, RowBefore] = {}
        cells: dict[tuple[str, Any], Any] = {}
        waits: list[Line] = []
        for entry in self.journal.entries:
            if isinstance(entry, RowBefore):
                first.setdefault(entry.job_id, entry)
            elif isinstance(entry, WaitBefore):
                waits += self._wait_lines(entry)
            else:
                cells.setdefault((entry.table, entry.key), entry.value)
        lines: list[Line] = []
        for before in first.values():
            lines += self._row_lines(before)
        lines += waits
        cell_lines = (self._cell_line(table, key, before) for (table, key), before in cells.items())
        lines += [line for line in cell_lines if line is not None]
        return lines

    def won(self, lines: Sequence[Line]) -> tuple[list[Written], Mapping[str, int]]:
        """The effects are committed. Returns the written rows, for the observer, and the topics to wake."""
        for line in lines:
            if line["t"] == "change" and (kept := self._extras.get(("job", line["id"]))):
                self._keep("job", line["id"], {name: value for name, value in kept.items() if name not in line})
            elif line["t"] == "gone":
                self._keep("job", line["id"], {})
        self.number += 1
        self.journal.clear()
        return self._collected()

    def _collected(self) -> tuple[list[Written], Mapping[str, int]]:
        """The written rows and the topics to wake since the last call."""
        written, self._written = self._written, []
        woken, self._woken = self._woken, Counter()
        self._moves = {minute: Counter(counted) for minute, counted in self.tables.rows.moves.items()}
        return written, woken

    def undo(self, mark: int = 0) -> None:
        """Undo what is not committed, since the journal had `mark` entries."""
        self.journal.undo(mark)
        if mark == 0:
            self._written.clear()
            self._woken.clear()
            self.tables.rows.moves = {minute: Counter(counted) for minute, counted in self._moves.items()}

    def _row_lines(self, before: RowBefore) -> Iterator[Line]:
        rows, job_id = self.tables.rows, before.job_id
        after = rows.jobs.get(job_id)
        if after is None:
            if before.job is not None:
                yield {"t": "gone", "id": job_id}
        elif before.job is None:
            yield documents.job_line(after, {})
        elif (change := documents.change_line(before.job, after)) is not None:
            yield change
        dropped, added = _differences(before.events or (), rows.events.get(job_id, ()))
        if dropped:
            yield {"t": "drop", "id": job_id, "seqs": dropped}
        for event in added:
            yield documents.event_line(event)

    def _wait_lines(self, entry: WaitBefore) -> list[Line]:
        if entry.operation == "add":
            on = self.tables.rows.waits.on.get(entry.job_id)
            # None: added and removed in the same commit
            return [] if on is None else [{"t": "wait", "id": entry.job_id, "on": list(on)}]
        if entry.operation == "close":
            return [{"t": "wait_over", "id": entry.job_id}] if entry.edges else []
        return [{"t": "wait_gone", "id": entry.job_id}]

    def _cell_line(self, table: str, key: Any, before: Any) -> Line | None:
        codec, value = BY_TABLE[table], self.journal.small[table].get(key, ABSENT)
        if value is before or value == before:
            return None
        if value is ABSENT:
            return codec.gone(key)
        return self._timed(codec.line(key, value, self._extras.get((codec.t, key), {})))

    def _timed(self, line: Line) -> Line:
        """The line of a lead has its remaining time: the monotonic clock of one machine means nothing to another."""
        if line["t"] != "lead":
            return line
        left_ms = max(0, line["until_ms"] - self._clock.lease_ms())
        return {**line, "left_ms": left_ms, "clock": self._clock_name}

    # effects of other processes ---------------------------------------------------------------------

    def apply(self, lines: Iterable[Line]) -> Mapping[str, int]:
        """Apply the documents of a commit or of a snapshot. Returns the topics to wake."""
        rows = self.tables.rows
        after: dict[str, Job | None] = {}
        woken: Counter[str] = Counter()
        recent_ms = self._clock.now_ms() - RATE_MINUTES * 60_000
        for line in lines:
            match line["t"]:
                case "job" | "change" | "gone":
                    self._row(line, after)
                case "event":
                    event = documents.read_event(line)
                    rows.events.setdefault(event.job_id, []).append(event)
                    if event.at_ms >= recent_ms:
                        rows.count_moves([event])
                case "drop":
                    self._drop(line)
                case "wait" | "wait_over" | "wait_gone":
                    self._edges(line)
                case kind if kind in CODECS:
                    woken.update(self._cell(line))
                case kind if kind not in HEADERS:
                    self._stranger(line)
        woken.update(self._place(after))
        self.journal.clear()
        self._collected()
        return woken

    def lines(self) -> Iterator[Line]:
        """Everything, as documents."""
        rows = self.tables.rows
        for job_id in rows.ids:
            yield documents.job_line(rows.jobs[job_id], self._extras.get(("job", job_id), {}))
        for events in rows.events.values():
            for event in events:
                yield documents.event_line(event)
        for job_id, on in rows.waits.on.items():
            still = [each for each in on if job_id in rows.waits.open.get(each, ())]
            yield {"t": "wait", "id": job_id, "on": list(on), "open": still}
        for table, values in self.journal.small.items():
            codec = BY_TABLE[table]
            for key, value in values.items():
                yield self._timed(codec.line(key, value, self._extras.get((codec.t, key), {})))
        yield from self._strangers.values()

    def _row(self, line: Line, after: dict[str, Job | None]) -> None:
        job_id = line["id"]
        extras: Extras = {}
        if line["t"] == "job":
            after[job_id], extras = documents.read_job(line)
            self.tables.rows.events.setdefault(job_id, [])
        elif line["t"] == "change":
            before = after.get(job_id) or self.tables.rows.jobs[job_id]
            after[job_id], extras = documents.read_change(line, before, self._extras.get(("job", job_id), {}))
        else:
            after[job_id] = None
        self._keep("job", job_id, extras)

    def _place(self, after: Mapping[str, Job | None]) -> Mapping[str, int]:
        rows = self.tables.rows
        woken: Counter[str] = Counter()
        before = {job_id: rows.jobs.get(job_id) for job_id in after}
        rows.place(after)
        for job_id, row in after.items():
            if row is None:
                if not rows.events.get(job_id):
                    rows.events.pop(job_id, None)
                continue
            woken.update(topics(before[job_id], row))
            if row.lane == Lane.ROUTED:
                woken[f"queue:{row.queue}"] += EVERYBODY
            if falls_due(before[job_id], row):
                woken[f"queue:{row.queue}"] += 1
        return woken

    def _drop(self, line: Line) -> None:
        kept = self.tables.rows.events.get(line["id"], [])
        spans = line["seqs"]
        kept[:] = [event for event in kept if not any(low <= event.seq <= high for low, high in spans)]
        if not kept and line["id"] not in self.tables.rows.jobs:
            self.tables.rows.events.pop(line["id"], None)

    def _edges(self, line: Line) -> None:
        waits, job_id = self.tables.rows.waits, line["id"]
        if line["t"] == "wait_over":
            for _ in waits.close(job_id):
                pass
        elif line["t"] == "wait_gone":
            waits.forget(job_id)
        else:
            waits.add(job_id, line["on"])
            if "open" in line:
                waits.keep(job_id, line["open"])

    def _cell(self, line: Line) -> Mapping[str, int]:
        codec = CODECS[line["t"]]
        key = codec.key(line)
        if line.get("gone"):
            self.journal.small[codec.table].put_back(key, ABSENT)
            self._keep(codec.t, key, {})
            return {}
        if codec.t == "lead":
            line = dict(line)
            left_ms, clock = line.pop("left_ms", 0), line.pop("clock", "")
            if clock != self._clock_name or not clock:
                line["until_ms"] = self._clock.lease_ms() + left_ms
        value, extras = codec.read(line)
        self.journal.small[codec.table].put_back(key, value)
        self._keep(codec.t, key, extras)
        if codec.t == "queue" and not value.paused:
            return {f"queue:{key}": max(1, len(self.tables.rows.ready[key]))}
        return {}

    def _stranger(self, line: Line) -> None:
        name = (line["t"], str(line.get("id", "")))
        if line.get("gone"):
            self._strangers.pop(name, None)
        else:
            self._strangers[name] = line

    def _keep(self, kind: str, key: Any, extras: Extras) -> None:
        if extras:
            self._extras[kind, key] = extras
        else:
            self._extras.pop((kind, key), None)

    def _collect_woken(self, woken: Mapping[str, int]) -> None:
        self._woken.update(woken)

    def _collect_written(self, written: Sequence[Written]) -> None:
        self._written.extend(written)


def _differences(before: Sequence[Event], after: Sequence[Event]) -> tuple[list[list[int]], list[Event]]:
    """Spans of removed events, and the added events."""
    if len(after) >= len(before) and all(old is new for old, new in zip(before, after, strict=False)):
        return [], list(after[len(before) :])
    new = {event.seq: event for event in after}
    old = {event.seq: event for event in before}
    spans: list[list[int]] = []
    for event in before:
        if new.get(event.seq) == event:
            continue
        if spans and spans[-1][1] == event.seq - 1:
            spans[-1][1] = event.seq
        else:
            spans.append([event.seq, event.seq])
    return spans, [event for event in after if old.get(event.seq) != event]
