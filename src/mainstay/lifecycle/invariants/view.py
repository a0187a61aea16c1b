"""The input of an invariant, and its findings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ...clock import MAX_MS
from ...model import Job
from ..events import Event
from ..seals import digest_text
from ..states import State, Table, table_of


class Mend(StrEnum):
    """What a repair does about a finding."""

    FIX = "the value is set to what the audit trail proves"
    ANCHOR = "the old events stay visible; from the repair's own event on, the history can be checked again"
    REAP = "taken back from its lost holder, as by the sweeper"
    HOLD = "an unsettled job is quarantined (a unit cancelled); a settled one is kept and the damage accepted"
    NONE = "shown, and left alone"


class Flaw(msgspec.Struct, frozen=True):
    """One problem of a row, in words, and the values that would repair it if they are known."""

    message: str
    fix: Mapping[str, Any] = {}
    mend: Mend | None = None
    """if it differs from that of the invariant"""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A broken invariant, or a notice about a row that is not wrong."""

    code: str
    message: str
    mend: Mend
    fix: Mapping[str, Any] = {}
    notice: bool = False


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A row with everything that an invariant may need."""

    job: Job
    events: Sequence[Event]
    damaged: Mapping[str, str]
    broken: str | None
    """where the chain breaks, in words"""
    head: Event | None
    """the event that the row was sealed with, if it is proven and there are later events, which are not ours"""
    doubtful: bool
    """the history is proven except for its last event, which was changed"""
    now_ms: int
    live_sessions: Collection[str]
    silent_sessions: Collection[str]
    parent_exists: bool
    open_units: bool

    @property
    def table(self) -> Table:
        return table_of(self.job.parent)

    @property
    def state(self) -> State | None:
        return self.table.get(self.job.status)

    @property
    def last(self) -> Event | None:
        return self.events[-1] if self.events else None

    @property
    def proof(self) -> Event | None:
        """The last event, if the chain proves it."""
        return None if self.broken else self.last

    @property
    def due_ms(self) -> int | None:
        """The due time in the trail; None if it has none."""
        if self.broken:
            return None
        for event in reversed(self.events):
            state = self.table.get(event.to)
            if "due_ms" in (event.details or ""):
                found = event.data.get("due_ms")
                return found if isinstance(found, int) else None
            if event.source is None:
                return event.at_ms if "job_sha256" in (event.details or "") else None
            if state is None or not (state.settled or state.holds):
                return None  # an earlier version wrote it, and may have set another time
        return None

    @property
    def settled_at_ms(self) -> int | None:
        """The time of settling in the trail; None if it has none."""
        if self.broken or self.state is None or not self.state.settled:
            return None
        for event in reversed(self.events):
            if event.flag == "repair" and '"settled_ms"' in (event.details or ""):
                return None  # an earlier version repaired the time by its own rule
            if event.to == self.job.status and event.source != event.to:
                return event.at_ms if 0 <= event.at_ms <= MAX_MS else None
        return None

    @property
    def last_ms(self) -> int:
        """The time of the last event with a valid one."""
        return next((e.at_ms for e in reversed(self.events) if 0 <= e.at_ms <= MAX_MS), self.now_ms)


Look = Callable[[View], Iterator[Flaw]]


class Invariant(msgspec.Struct, frozen=True):
    """One entry of the list."""

    code: str
    meaning: str
    look: Look
    mend: Mend
    notice: bool = False


def fingerprint(findings: Collection[Finding]) -> str:
    """Identifies this damage (all findings of one code). Accepted damage that changes is reported again."""
    text = "\n".join(sorted(f"{found.code}: {found.message}" for found in findings))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def payload_sha256(payload: bytes) -> str:
    """The digest of a payload in events."""
    return digest_text(payload)
