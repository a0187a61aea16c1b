"""Snapshots of a store, for the overview, its stream and the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from ...control import WAITING_STATES
from ...lifecycle import JOB
from ...model import Job
from ..api.masker import Masker


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    name: str
    counts: dict[str, int]
    waiting: int
    """jobs that no worker has taken yet"""
    oldest_ready_ms: int | None = None
    """due time of the job that has waited longest"""
    paused: bool = False
    reason: str | None = None
    set_by: str = ""
    """who paused or resumed it last; empty: unknown"""
    set_ms: int | None = None


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of a job that a worker holds."""

    id: str
    name: str
    queue: str
    status: str
    unit: str | None
    parent: str | None
    started_ms: int | None
    done: float | None = None
    """its last reported progress ..."""
    total: float | None = None
    """... of this"""


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a worker, and the newest jobs that it holds."""

    id: str
    worker: str
    host: str
    pid: int
    started_ms: int
    at_work: bool
    dead: bool
    supervisor: int
    """pid of its supervisor; 0: it has none"""
    draining_ms: int | None
    """when it was asked to drain"""
    draining_by: str
    queues: list[str] | None
    """the queues that it claims from; null: unknown"""
    silent_ms: int
    """time since its last heartbeat"""
    holds: int
    more: bool
    """it holds more jobs than were counted"""
    jobs: list[HeldJob]


class FailureCause(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that failed with the same error."""

    code: str
    type: str
    message: str
    """of the newest job"""
    count: int
    names: dict[str, int]
    """task -> number of jobs"""
    newest: str
    """id of the newest job"""
    newest_ms: int


class FailureSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The newest failed jobs, by cause."""

    looked_at: int = 0
    more: bool = False
    """there are older failed jobs, which were not read"""
    causes: list[FailureCause] = []


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A running batch or load test."""

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
    """A store at one moment. If it does not answer, its last known state."""

    store: str
    at_ms: int = 0
    """time of the snapshot; it increases with each snapshot of a store"""
    stats_ms: int = 0
    """when the numbers were read; 0: never yet"""
    up: bool = False
    """it answered the last read"""
    error: str = ""
    """why it did not answer"""
    counts: dict[str, int] = {}
    """jobs per status, in all queues"""
    rates: dict[str, float] = {}
    """moves into each status per minute, over the last four to five minutes"""
    submitted: float = 0.0
    """submitted jobs per minute, over the last four to five minutes"""
    waiting: int = 0
    oldest_ready_ms: int | None = None
    queues: list[QueueSnapshot] = []
    sessions: list[SessionSnapshot] = []
    """live sessions first; a long list is cut"""
    live_sessions: int = 0
    aside: int = 0
    """rows set aside because they could not be read"""
    leader: str | None = None
    """the session that runs schedules, retention and checks"""
    findings: tuple[str, ...] = ()
    unserved: list[str] = []
    """jobs that no live worker takes, a sentence each"""
    schedules: list[dict[str, Any]] = []
    failures: FailureSummary = FailureSummary()
    runs: list[RunSnapshot] = []
    since_ms: dict[str, int] = {}
    """state that jobs should leave soon -> since when its oldest job is in it"""

    @property
    def oldest_ready_s(self) -> float:
        """How long the oldest waiting job has been due."""
        return 0.0 if self.oldest_ready_ms is None else max(0, self.stats_ms - self.oldest_ready_ms) / 1000


def held(job: Job, masker: Masker) -> HeldJob:
    """The summary of a held job, without values of the user."""
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
    """The summary of a batch or load test."""
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
    """Group failed jobs by the code and type of their error, the most frequent cause first."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        error = job.error
        groups.setdefault((job.status, "") if error is None else (error.code, error.type), []).append(job)
    causes = [_cause(code, kind, alike) for (code, kind), alike in groups.items()]
    return sorted(causes, key=lambda cause: (-cause.count, -cause.newest_ms))


def _cause(code: str, kind: str, alike: list[Job]) -> FailureCause:
    newest = max(alike, key=lambda job: job.settled_ms or job.changed_ms)
    message = (newest.reason or "") if newest.error is None else newest.error.message
    return FailureCause(
        code=code,
        type=kind,
        message=message[:300],
        count=len(alike),
        names=dict(Counter(job.name for job in alike).most_common(10)),
        newest=newest.id,
        newest_ms=newest.settled_ms or newest.changed_ms,
    )


def waiting(counts: dict[str, int]) -> int:
    """The number of waiting jobs among the counts of a queue."""
    return sum(counts.get(status, 0) for status in WAITING_STATES)


def in_order(counts: Counter[str]) -> dict[str, int]:
    """Counts in the order of the lifecycle; states that only a newer version knows come last."""
    known = [status for status in JOB.states if counts[status]]
    return {status: counts[status] for status in (*known, *sorted(counts.keys() - JOB.states.keys()))}


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
    "run_of",
    "waiting",
]
