"""Snapshot: a store at one moment, as data for JSON. The overview, its stream and the metrics show the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from ...control.actions import WAITING
from ...lifecycle import JOB
from ...model import Job
from ..api.masker import Masker
from ..stores import ServedStore


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    name: str
    counts: dict[str, int]
    waiting: int
    """those that nobody has taken yet"""
    oldest_ready_ms: int | None = None
    """since when the one that waits longest has been due"""
    paused: bool = False
    reason: str | None = None
    set_by: str = ""
    """who paused or resumed it last; empty: nobody, or before that was kept"""
    set_ms: int | None = None


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that somebody works on, in short."""

    id: str
    name: str
    queue: str
    status: str
    unit: str | None
    parent: str | None
    started_ms: int | None
    done: float | None = None
    """how far it has come, as it last reported ..."""
    total: float | None = None
    """... of this"""


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a worker, and the newest of what it holds."""

    id: str
    worker: str
    host: str
    pid: int
    started_ms: int
    at_work: bool
    dead: bool
    supervisor: int
    """pid of the worker that it is an engine of; 0: it is a worker of its own"""
    draining_ms: int | None
    """since when it is asked to take no more jobs and to end"""
    draining_by: str
    queues: list[str] | None
    """the queues that it claims from; null: it does not say"""
    silent_ms: int
    """since its last heartbeat"""
    holds: int
    more: bool
    """it holds more than were counted"""
    jobs: list[HeldJob]


class FailureCause(msgspec.Struct, frozen=True, kw_only=True):
    """Why jobs failed that stand failed now: those that failed alike."""

    code: str
    type: str
    message: str
    """of the newest"""
    count: int
    names: dict[str, int]
    """tasks -> how many of them"""
    newest: str
    """the id of the newest"""
    newest_ms: int


class FailureSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The newest jobs that stand failed, by cause."""

    looked_at: int = 0
    more: bool = False
    """there are older ones, which were not looked at"""
    causes: list[FailureCause] = []


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A batch or a load test that is at work."""

    id: str
    kind: str
    name: str
    queue: str
    status: str
    reason: str | None
    created_ms: int
    started_ms: int | None
    units: dict[str, int]
    """units per status"""
    done: float | None = None
    total: float | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A store at one moment. Where it does not answer, what was last known of it."""

    store: str
    at_ms: int = 0
    """when this was told; each snapshot of a store has a later one"""
    stats_ms: int = 0
    """when the numbers were read; 0: never yet"""
    up: bool = False
    """it answered when it was last asked"""
    error: str = ""
    """why it did not"""
    counts: dict[str, int] = {}
    """jobs per status, in all queues"""
    rates: dict[str, float] = {}
    """moves into each status per minute, over the last four to five minutes"""
    submitted: float = 0.0
    """jobs that came in per minute, over the last four to five minutes"""
    waiting: int = 0
    oldest_ready_ms: int | None = None
    queues: list[QueueSnapshot] = []
    sessions: list[SessionSnapshot] = []
    """the living first, and those with most to do; a long list is cut"""
    live_sessions: int = 0
    aside: int = 0
    """rows set aside because they could not be read"""
    leader: str | None = None
    """the session that runs schedules, retention and checks"""
    findings: tuple[str, ...] = ()
    unserved: list[str] = []
    """which jobs no live worker takes, a sentence each"""
    schedules: list[dict[str, Any]] = []
    failures: FailureSummary = FailureSummary()
    runs: list[RunSnapshot] = []
    since_ms: dict[str, int] = {}
    """of states that a job passes through: since when the one that is in it longest has been, by what was looked at"""

    @property
    def oldest_ready_s(self) -> float:
        """How long the one that waits longest has waited."""
        return 0.0 if self.oldest_ready_ms is None else max(0, self.stats_ms - self.oldest_ready_ms) / 1000


def held(job: Job, masker: Masker) -> HeldJob:
    """In short, without anything that belongs to the user."""
    progress = job.progress
    return HeldJob(
        id=job.id,
        name=job.name,
        queue=job.queue,
        status=job.status,
        unit=None if job.unit is None else masker.unit(job.unit),
        parent=job.parent,
        started_ms=job.started_ms,
        done=None if progress is None else progress.done,
        total=None if progress is None else progress.total,
    )


def run_of(job: Job, units: dict[str, int]) -> RunSnapshot:
    """A batch or load test in short."""
    progress = job.progress
    return RunSnapshot(
        id=job.id,
        kind=job.kind,
        name=job.name,
        queue=job.queue,
        status=job.status,
        reason=job.reason,
        created_ms=job.created_ms,
        started_ms=job.started_ms,
        units=units,
        done=None if progress is None else progress.done,
        total=None if progress is None else progress.total,
    )


def by_cause(jobs: Iterable[Job]) -> list[FailureCause]:
    """Group failed jobs, newest first, by what their errors are called; the most frequent cause first."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        error = job.error
        groups.setdefault((job.status, "") if error is None else (error.code, error.type), []).append(job)
    causes = [_cause(code, kind, alike) for (code, kind), alike in groups.items()]
    return sorted(causes, key=lambda cause: (-cause.count, -cause.newest_ms))


def _cause(code: str, kind: str, alike: list[Job]) -> FailureCause:
    newest = max(alike, key=lambda job: job.settled_ms or job.changed_ms)
    said = (newest.reason or "") if newest.error is None else newest.error.message
    return FailureCause(
        code=code,
        type=kind,
        message=said[:300],
        count=len(alike),
        names=dict(Counter(job.name for job in alike).most_common(10)),
        newest=newest.id,
        newest_ms=newest.settled_ms or newest.changed_ms,
    )


def waiting(counts: dict[str, int]) -> int:
    """Of one queue's counts, those that nobody has taken yet."""
    return sum(counts.get(status, 0) for status in WAITING)


def in_order(counts: Counter[str]) -> dict[str, int]:
    """In the order of the lifecycle; what only a newer version knows comes last."""
    known = [status for status in JOB.states if counts[status]]
    return {status: counts[status] for status in (*known, *sorted(counts.keys() - JOB.states.keys()))}


def nothing_yet(served: ServedStore) -> Snapshot:
    """Before the first look."""
    return Snapshot(store=served.name)


__all__ = [
    "FailureCause",
    "FailureSummary",
    "HeldJob",
    "QueueSnapshot",
    "RunSnapshot",
    "SessionSnapshot",
    "Snapshot",
    "by_cause",
    "held",
    "in_order",
    "nothing_yet",
    "run_of",
    "waiting",
]
