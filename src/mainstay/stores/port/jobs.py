"""The face of jobs: insert, look up, claim, change, report, sweep, trim, delete.

What a caller hands in (`NewJob`, `Change`, `ClaimReport`, `Query`, `TrimPolicy`) and what it gets back stands before
the protocol that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, Self

import msgspec

from ...lifecycle import ChangeKind, Event, Move, Moved
from ...model import Job, Leadership, Progress
from ..durability import Durability


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key. Kept in its own table, so it outlives a trimmed job."""

    scope: str
    """the task's name"""
    name: str
    content: bytes
    """digest of task and canonical arguments, of the callback of a group of all its jobs; options do not count"""
    until_ms: int


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to insert, already moved into its first state by `lifecycle.submit`."""

    job: Job
    events: tuple[Event, ...]
    key: Key | None = None
    on_clash: Literal["return", "refuse"] = "return"
    """when an unsettled job holds the same `unique_key`"""
    after: tuple[str, ...] = ()
    """ids of the jobs it waits for, stored or earlier in the same batch. One that met a job which was there before
    stands for that job"""
    must_be_new: bool = False
    """refuse the whole batch with `AlreadySubmitted` if another job stands for it"""


class InsertResult(msgspec.Struct, gc=False):
    """What became of one new job: itself, or an earlier one (`created` is False)."""

    id: str
    created: bool
    by: Literal["", "key", "unique"] = ""
    """which key led to the earlier job: the idempotency key (that job may be deleted since), or the unique key"""
    durability: str = ""
    """what the answer survives, in words: the requested level, and the level that the store is configured for. Set by
    control"""


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One compare-and-swap: `before` as the caller saw it; `after`, `events` and `kind` from the machine.

    Written only if the stored version still is `before.version` and no counter would shrink. The columns a
    holder reports (progress, checkpoint) are not written by a change.
    """

    before: Job
    after: Job
    events: tuple[Event, ...]
    kind: ChangeKind = "move"
    """what the change is. An adapter may rely on it: a `complete` is written without comparing `before` with `after`"""
    holder: str | None = None
    """set by a worker: the change is refused as stale unless this session still holds `before.token`"""
    spawn: tuple[NewJob, ...] = ()
    """jobs inserted in the same transaction, if and only if this change is applied"""
    on_last: Move | None = None
    """applied to the parent in the same transaction if this was its last unsettled unit"""

    @classmethod
    def of(
        cls,
        before: Job,
        moved: Moved,
        *,
        holder: str | None = None,
        spawn: tuple[NewJob, ...] = (),
        on_last: Move | None = None,
    ) -> Self:
        """The change that writes what the machine made of a row."""
        return cls(
            before=before,
            after=moved.job,
            events=moved.events,
            kind=moved.kind,
            holder=holder,
            spawn=spawn,
            on_last=on_last,
        )


Outcome = Literal["applied", "already_applied", "stale", "conflict", "missing"]


class ChangeResult(msgspec.Struct, frozen=True, gc=False):
    """What became of one change.

    - applied: written, with its events
    - already_applied: the same change was written before (a lost acknowledgement); nothing written now
    - stale: the holder lost its claim; nothing written but a line in the refusals
    - conflict: somebody moved the row first; nothing written. Read `job` and decide anew
    - missing: there is no such row
    """

    outcome: Outcome
    job: Job | None = None
    """the row as it stands now (for applied: `after`)"""
    last: bool = False
    """it was the last unsettled unit of its parent"""


Deletion = Literal["deleted", "held", "missing", "changed"]


class ClaimReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a holder says between moves; refused unless it still holds the token.

    Values that are None are left as they are. A report changes no version and writes no event.
    """

    job_id: str
    session: str
    token: int
    started_ms: int | None = None
    """the work began; counted in `starts` once per token"""
    progress: Progress | None = None
    checkpoint: bytes | None = None


class Overdue(msgspec.Struct, frozen=True):
    """A row the sweeper must look at: its session is dead, or its `expires_ms` has passed."""

    job: Job
    cause: Literal["session", "time"]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter; fields that are None do not filter. Results are ordered by id, newest first by default."""

    status: tuple[str, ...] | None = None
    kind: str | None = None
    queue: str | None = None
    name: str | None = None
    parent: str | None = None
    """units of this job; without it, units are left out, unless it is asked what a session holds"""
    group: str | None = None
    """members of the group whose callback has this id"""
    session: str | None = None
    """what it holds, jobs and units"""
    tag: str | None = None
    key: str | None = None
    text: str | None = None
    """part of the id, name, reason or last error message"""
    created_from_ms: int | None = None
    created_before_ms: int | None = None
    oldest_first: bool = False
    value_bytes: int | None = None
    """longer payloads, results and checkpoints are left out of the rows (`stores.left_out`); None: no value is"""


class Page(msgspec.Struct, frozen=True):
    """Some rows and where to go on; `cursor` is None on the last page."""

    jobs: list[Job]
    cursor: str | None


class RefusedWrite(msgspec.Struct, frozen=True):
    """A ghost's write that was refused; kept once per job and token."""

    job_id: str
    token: int
    session: str
    wanted: str
    at_ms: int


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one queue."""

    counts: dict[str, int]
    """rows per status; units are not counted"""
    oldest_ready_ms: int | None = None
    """due time of the longest-waiting ready row"""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the store at a glance."""

    at_ms: int
    queues: dict[str, QueueStats]
    rates: dict[str, float]
    """moves into each status per minute, over the last four whole minutes and the one that has begun; of a younger
    store, since its first job (but over ten seconds at least)"""
    submitted: float = 0.0
    """jobs that were stored per minute, over the same time; units are not counted"""
    sessions: int
    aside: int
    """rows set aside because they could not be read"""
    findings: tuple[str, ...] = ()
    """what the fast check at open found"""
    leader: str | None = None
    """the session that runs schedules, retention and checks; None: no session does, which lasts for seconds while
    sessions are at work"""
    routed: dict[str, dict[str, int]] = {}
    """by queue and task (`model.route_of`): jobs and units that a worker met which does not have their task. They wait
    for a session that offers it"""


class TrimPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What may go. Unsettled rows never do; a parent goes with its units, and only when all are settled."""

    settled_before_ms: Mapping[str, int] = {}
    """per status: rows settled before this go. Rows with their own retention (`options.keep_s`) go when their
    `expires_ms` has passed, whatever stands here"""
    keep_count: Mapping[str, int] = {}
    """per status: only this many newest rows stay"""
    keep_events: int | None = None
    """per job: only this many newest events stay; older ones are trimmed, the chain stays checkable"""
    batch: int = 1000
    """most jobs removed and most jobs' events trimmed by one call"""


class Trimmed(msgspec.Struct, frozen=True):
    """What one call of `trim` removed; `more` says that another call would find more."""

    jobs: int
    events: int
    keys: int
    more: bool


#: a row before (None: it was not there) and after a write, and the events written with it
Written = tuple[Job | None, Job, Sequence[Event]]
#: hears of the rows that one commit wrote
Observer = Callable[[Sequence[Written]], None]


class JobRepository(Protocol):
    """The jobs of a store, with their events, keys and refusals."""

    async def insert(self, jobs: Sequence[NewJob], *, durability: Durability | None = None) -> list[InsertResult]:
        """Insert all or nothing. A key or unique clash answers with the job that was there, also for
        duplicates inside the batch; the same key with other content raises `KeyConflict`, a refused
        unique clash `UniqueClash`, an id that exists `Conflict`, a unit whose parent is neither stored nor earlier in
        the batch `InvalidInput`, and so a job that waits for one that is neither; each naming the index.

        What a job waits for may have settled already: that is judged at once, in the same transaction.

        With `durability`, the answer comes once that much is reached, instead of what the store's URL says; a level
        that `durability_of` refuses is refused here, too, with nothing written."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Job | None]: ...

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page: ...

    async def claim(self, queues: Sequence[str], session: str, n: int) -> list[Job]:
        """Take up to n ready rows, lowest rank first over all the queues, for an open session.

        Due rows are promoted first (with their event). Paused queues give nothing. Of a session with an offer only the
        tasks that it names are given: other rows go to `Lane.ROUTED`, and come back when a session that has their task
        claims (`routes`). A row whose concurrency key
        is at its limit goes to `Lane.BLOCKED` instead. A row past its `expires_ms` (its queue deadline) is passed over
        and left to the sweeper, so that nothing more has to be written about what was taken. A session that is dead or
        not known raises `SessionLost`, whether there is anything to claim or not: its worker would idle for ever
        otherwise.
        """
        ...

    async def apply(self, changes: Sequence[Change], *, lead: Leadership | None = None) -> list[ChangeResult]:
        """Write each change on its own merits, all in one commit. With `lead`, raises `NotLeader` and
        writes nothing if that epoch is over. Frees concurrency slots: the best blocked row per queue gets ready.

        In the same commit, whoever waited for a row that settled here (or anywhere else: a sweep, a repair, a
        deletion) moves on as `change_check.dependant_move` says; and so whoever waited for those."""
        ...

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        """Record start, progress and checkpoint; False where the token is no longer held. Progress moves
        `expires_ms` as `model.expiry` says."""
        ...

    async def due(self, queues: Sequence[str]) -> int | None:
        """The next time at which a waiting row of these queues gets ready; None if none waits."""
        ...

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        """Declare sessions dead whose lease is over (or whose lock is free), then list rows held by dead
        sessions and unsettled rows past their `expires_ms`. A dead session's beats are refused from here on.

        A store may have an attribute `look_again_s`. It is not None while a session is suspected to be dead: then it
        says how soon this should be called again, instead of at the next sweep."""
        ...

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events in order. A deleted job still has its tombstone."""
        ...

    async def refusals(self, job_id: str) -> list[RefusedWrite]: ...

    async def awaited(self, job_id: str) -> list[str]:
        """The ids of the jobs it waits for, or waited for, in the order they were given."""
        ...

    async def unit_counts(self, parent: str) -> dict[str, int]:
        """How many units of a job stand in each status; none for a job that has none or does not exist. Its drivers
        (`model.driver_ids`) are not counted: they do no unit's work."""
        ...

    async def stats(self) -> Stats: ...

    async def trim(self, policy: TrimPolicy, *, lead: Leadership | None = None) -> Trimmed:
        """Remove one batch of what the policy lets go, and expired idempotency keys."""
        ...

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        """Delete unclaimed rows with their units and events; a tombstone event stays. Of a row that `versions` names
        only if it is at that version: at another it is left as it is and answered with `changed`, held or not."""
        ...
