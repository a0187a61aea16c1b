"""Job: one row. A unit is a row with a parent; it has the same claimable shape.

`Job` is built positionally from a stored row (0.2 us, against 8 us by keyword for this many fields), so its fields are
in column order, and adapters rely on that order. All other code names the fields. Programs hold thousands of rows, and
rows cannot form cycles, so the garbage collector does not track them (`gc=False`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Literal

import msgspec

from ..clock import MAX_MS

NO_DIGEST = b"\0" * 32
#: The due time of a row that waits for other jobs: later than any time that can be requested, so that no clock makes it
#: ready. The end of the wait sets its real due time.
AWAITS_MS = MAX_MS
#: The due time of a job that waits for cores of nodes: a time that never comes, either. The leader of placement sets
#: the real one when it has cores for the job. The rank stays, so the job keeps its place among those that wait.
PLACE_MS = AWAITS_MS - 1
_SHOWN = ("id", "name", "status", "version", "token", "session")


class Lane(IntEnum):
    """Which set a row is in, for selection. The store derives it from status, due time and limits."""

    NONE = 0
    READY = 1
    """in the ready index of its queue"""
    DUE = 2
    """becomes ready at `due_ms`"""
    BLOCKED = 3
    """over the limit of its concurrency key; the best of these gets the next free slot"""
    ASIDE = 4
    """damaged: set aside so that other rows can be claimed; `mainstay check` reports it"""
    ROUTED = 5
    """a worker of its queue does not have its task; only sessions that offer the task claim it"""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How often and how soon a failed attempt is retried.

    The wait before retry n (1 for the first) is base * 2^(n-1) (exponential), base * n (linear) or
    base (fixed), at most `cap_s`; with `jitter` it is drawn evenly between zero and that.
    """

    retries: int = 3
    """attempts after the first; 0: no retry"""
    kind: Literal["exponential", "linear", "fixed"] = "exponential"
    base_s: float = 2.0
    cap_s: float = 600.0
    jitter: bool = True
    crash_budget: int = 3
    """how many times the job may crash its process before it is quarantined"""


class Options(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The options of a submit, which never change. New fields go last: they are stored as an array."""

    retry: RetryPolicy = RetryPolicy()
    run_timeout_s: float | None = 3600.0
    """longest run of one attempt; None: no limit"""
    stall_timeout_s: float | None = None
    """longest run without progress; None: off"""
    on_stall: Literal["retry", "hold"] = "retry"
    """the result of a stall: another attempt, or quarantine for an operator"""
    grace_s: float = 10.0
    """time to stop after a cancel or timeout, before the job is taken back by force"""
    start_by_ms: int | None = None
    """queue deadline: the first attempt must begin by then"""
    keep_s: float | None = None
    """how long to keep it once settled; None: as the retention settings say"""
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    after_when: Literal["succeeded", "settled"] | None = None
    """which end of the jobs it waits for releases it; None: it waits for none"""
    after_failed: Literal["skip", "fail"] | None = None
    """what happens to it if one of them ends in another way"""
    not_before_ms: int | None = None
    """its own earliest time, in addition; None: at once when they are done"""


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The error of a failed attempt."""

    type: str
    message: str
    code: str = "error"
    traceback: str | None = None
    retryable: bool | None = None
    """True or False if the error itself decides; None leaves it to the policy"""


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a running job."""

    done: float
    total: float | None = None
    message: str | None = None


class Job(msgspec.Struct, frozen=True, gc=False):
    """One job (or unit) as stored. Change it only through `mainstay.lifecycle`."""

    # identity: fixed at submit (priority may change, with a note)
    id: str
    kind: str
    name: str
    """the task, workflow or study it runs"""
    queue: str
    parent: str | None
    """the job a unit belongs to"""
    unit: str | None
    """a unit's name within its job"""
    group: str | None
    options: Options
    key: str | None
    """idempotency key"""
    unique_key: str | None
    """held while unsettled"""
    concurrency_key: str | None
    priority: int

    # state: changed by lifecycle
    status: str
    reason: str | None
    """why it has this status, in a few words"""
    version: int
    """sequence number of its last event"""
    token: int
    """how many times it was claimed; the fencing token of the current or last claim"""
    session: str | None
    """the session that holds it"""
    starts: int
    failures: int
    crashes: int
    releases: int
    losses: int
    """the releases because its worker died before the work began, or without evidence against this job. Many of them
    suggest a job that crashes whole workers"""
    created_ms: int
    changed_ms: int
    due_ms: int
    claimed_ms: int | None
    started_ms: int | None
    settled_ms: int | None
    expires_ms: int | None
    """when the sweeper has to handle it: queue deadline, run timeout, stall or end of the grace period; once settled,
    when it may be trimmed if it was submitted with its own retention"""
    extra_ms: int
    """run time granted on top of the run timeout"""
    error: ErrorInfo | None
    result: bytes | None
    head: bytes
    """digest of the last event"""
    trimmed_seq: int
    """events up to here were trimmed (or set aside by a repair) ..."""
    trimmed_digest: bytes
    """... and this was the digest of the last of them"""

    # selection: kept by the store
    lane: int
    rank: int

    # reported by the holder between moves
    progress: Progress | None
    progress_ms: int | None
    checkpoint: bytes | None

    payload: bytes

    @property
    def is_unit(self) -> bool:
        return self.parent is not None

    @property
    def attempt(self) -> int:
        """The number of the current attempt, or of the next one if it is not claimed: 1 for the first.

        Attempts that failed, crashed, or were lost with their worker after they began count; snoozes and releases do
        not. A claim that was lost before its work began is not an attempt, so losses count only up to the number of
        starts.
        """
        ended = self.failures + self.crashes
        return ended + min(self.losses, max(0, self.starts - ended)) + 1

    @property
    def awaits(self) -> bool:
        """Whether it waits for other jobs. Then its due time has no meaning."""
        return self.due_ms == AWAITS_MS and self.settled_ms is None

    @property
    def awaits_cores(self) -> bool:
        """Whether it waits until the leader of placement has cores for it. Then its due time has no meaning."""
        return self.due_ms == PLACE_MS and self.settled_ms is None

    def __repr__(self) -> str:
        """Short, because rows are logged: never with payload or result."""
        return f"Job({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in _SHOWN]


#: A row to start from: not submitted yet. The only list of the initial values of all columns.
BLANK = Job(
    id="",
    kind="task",
    name="",
    queue="default",
    parent=None,
    unit=None,
    group=None,
    options=Options(),
    key=None,
    unique_key=None,
    concurrency_key=None,
    priority=0,
    status="pending",
    reason=None,
    version=0,
    token=0,
    session=None,
    starts=0,
    failures=0,
    crashes=0,
    releases=0,
    losses=0,
    created_ms=0,
    changed_ms=0,
    due_ms=0,
    claimed_ms=None,
    started_ms=None,
    settled_ms=None,
    expires_ms=None,
    extra_ms=0,
    error=None,
    result=None,
    head=NO_DIGEST,
    trimmed_seq=0,
    trimmed_digest=NO_DIGEST,
    lane=Lane.NONE,
    rank=0,
    progress=None,
    progress_ms=None,
    checkpoint=None,
    payload=b"",
)


def rank_of(due_ms: int, priority: int, boost_ms: int) -> int:
    """The order within a queue: lower goes first. One point of priority is worth `boost_ms` of waiting. As it is
    linear, ageing needs no update of rows."""
    return due_ms - priority * boost_ms


def expiry(job: Job) -> int | None:
    """When a *running* job overruns: run timeout or stall, whichever is first, plus its grace period.

    The holder of a claim enforces the limits itself, and the sweeper is the fallback, so the holder gets the grace
    period first. A job that its units advance has no holder, and no grace period.
    """
    if job.started_ms is None:
        return None
    options = job.options
    ends = []
    if options.run_timeout_s is not None:
        ends.append(job.started_ms + job.extra_ms + int(options.run_timeout_s * 1000))
    if options.stall_timeout_s is not None:
        ends.append(max(job.started_ms, job.progress_ms or 0) + int(options.stall_timeout_s * 1000))
    grace_s = 0.0 if job.session is None else options.grace_s
    return min(ends) + int(grace_s * 1000) if ends else None
