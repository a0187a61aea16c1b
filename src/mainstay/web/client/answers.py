"""What a server answers, as typed data. Fields that a newer server adds are passed over.

What is about jobs is declared here for type checkers, and is the same as what the server describes (a test holds both
together); the rest is the server's own.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...control.bulk import Answer
from ...model import ErrorInfo, Progress
from ...stores import Refusal
from ..api.seen import QueueCounts


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how soon a failed attempt is tried again."""

    retries: int
    kind: Literal["exponential", "linear", "fixed"]
    base_s: float
    cap_s: float
    jitter: bool
    crash_budget: int


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for at submit and never changes."""

    retry: RetryPolicy
    run_timeout_s: float | None
    stall_timeout_s: float | None
    on_stall: Literal["retry", "hold"]
    grace_s: float
    start_by_ms: int | None
    keep_s: float | None
    tags: tuple[str, ...]
    metadata: dict[str, str]
    after_when: Literal["succeeded", "settled"] | None
    after_failed: Literal["skip", "fail"] | None
    not_before_ms: int | None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job or unit as the server tells it. Times are milliseconds since 1970, UTC."""

    id: str
    kind: str
    name: str
    queue: str
    parent: str | None
    unit: str | None
    group: str | None
    options: JobOptions
    key: str | None
    unique_key: str | None
    concurrency_key: str | None
    priority: int
    status: str
    reason: str | None
    version: int
    token: int
    session: str | None
    starts: int
    failures: int
    crashes: int
    releases: int
    losses: int
    created_ms: int
    changed_ms: int
    due_ms: int
    claimed_ms: int | None
    started_ms: int | None
    settled_ms: int | None
    expires_ms: int | None
    extra_ms: int
    error: ErrorInfo | None
    head: str
    trimmed_seq: int
    trimmed_digest: str
    lane: int
    rank: int
    progress: Progress | None
    progress_ms: int | None
    payload: Any = None
    """it, the result and the checkpoint are there if they were asked for and the server shows them"""
    result: Any = None
    checkpoint: Any = None

    @property
    def is_settled(self) -> bool:
        """Nothing happens to it any more by itself."""
        return self.settled_ms is not None

    def __repr__(self) -> str:
        """Short, because it ends up in logs: never what people put into a job or what came out of it."""
        return f"Job(id={self.id!r}, name={self.name!r}, status={self.status!r}, version={self.version})"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's audit trail."""

    job_id: str
    seq: int
    at_ms: int
    source: str | None
    to: str
    actor: str
    reason: str | None
    token: int
    flag: str
    details: dict[str, Any] | None
    digest: str


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's process."""

    id: str
    worker: str
    host: str
    pid: int
    started_ms: int
    lease_s: float
    dead: bool
    supervisor: int
    """pid of the worker that it is an engine of; 0: it is a worker of its own"""
    draining_ms: int | None
    """since when it is asked to take no more jobs and to end"""
    draining_by: str
    """who asked"""
    queues: tuple[str, ...] | None = None
    """the queues that it claims from; None: it does not say"""
    tasks: tuple[str, ...] | None = None
    """the tasks that its program has; None: it does not say"""
    at_work: bool
    silent_ms: int
    age_ms: int


class Working(Session, frozen=True, kw_only=True):
    """A worker's process, and the newest of what it holds."""

    holds: int
    jobs: tuple[Job, ...]


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that wait for a worker which is not there."""

    queue: str
    task: str | None
    """None: no live worker listens on the queue; else none of those that do knows this task"""
    jobs: int
    told: str


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A store at a glance."""

    at_ms: int
    queues: dict[str, QueueCounts]
    rates: dict[str, float]
    """moves into each status per minute, over the last four to five minutes"""
    submitted: float
    """jobs that came in per minute, over the last four to five minutes"""
    live_sessions: int
    sessions: tuple[Session, ...]
    limits: dict[str, int]
    aside: int
    findings: tuple[str, ...]
    leader: str | None = None
    """the session that runs schedules, retention and checks"""
    unserved: tuple[Unserved, ...] = ()
    """jobs that no live worker takes"""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs; `next` is the cursor of the next page, and None on the last. A page may be short and have a next."""

    jobs: tuple[Job, ...]
    next: str | None
    finished: bool = True
    """False: the server has not finished looking; there may be more from `next` on"""


class UnitPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some units of a job, and how many stand in each status."""

    units: tuple[Job, ...]
    counts: dict[str, int]
    next: str | None


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """Some events of a job, in order; `next` is None when these were all."""

    events: tuple[Event, ...]
    next: int | None


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The audit trail in words, and the writes of lost claims that were refused."""

    lines: list[str]
    refusals: list[Refusal]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to many jobs, or would be."""

    action: str
    dry_run: bool
    matched: int
    counts: dict[str, int]
    sample: tuple[Job, ...]
    """the first of them, as they were before"""
    done: int
    refused: int
    refusals: tuple[Answer, ...]
    more: bool
    """there may be more that match: ask again"""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A running job told how far it has come."""

    id: str
    progress: Progress | None
    progress_ms: int | None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A job is settled, or was deleted: its stream is over."""

    id: str
    status: str | None
    """None: it was deleted"""
    reason: str | None = None
    deleted: bool = False


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """The server cannot look at its store now, and goes on trying."""

    detail: str


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A list of jobs that changed: the ids as they stand, and those jobs that are new or different."""

    at_ms: int
    ids: tuple[str, ...]
    jobs: tuple[Job, ...]
    finished: bool = True
    """False: the server has not finished looking; there may be more that match"""


#: what the stream of a job tells
News = Event | Job | Reported | Ended | Trouble

__all__ = [
    "Done",
    "Ended",
    "Event",
    "Job",
    "JobOptions",
    "JobPage",
    "Listed",
    "News",
    "Reported",
    "RetryPolicy",
    "Session",
    "Stats",
    "Story",
    "Trail",
    "Trouble",
    "UnitPage",
    "Working",
]
