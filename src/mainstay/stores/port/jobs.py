"""The part for jobs: insert, look up, claim, change, report, sweep, trim, delete.

Arguments (`NewJob`, `Change`, `ClaimReport`, `Query`, `TrimPolicy`) and results come before the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, Self

import msgspec

from ...errors import MainstayError
from ...lifecycle import ChangeKind, Event, Move, Moved
from ...model import Job, Leadership, Progress
from ..durability import Durability

#: how many marks of a session `claim` knows: an engine has two claims on their way at most, each sent again
MARKS_KEPT = 4


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key. It has its own table, so it outlives a trimmed job."""

    scope: str
    """the task's name"""
    name: str
    content: bytes
    """digest of task and canonical arguments; for the callback of a group, of all its jobs. Options do not count"""
    until_ms: int


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to insert, already moved into its first state by `lifecycle.submit`."""

    job: Job
    events: tuple[Event, ...]
    key: Key | None = None
    on_clash: Literal["return", "refuse"] = "return"
    """what to do if an unsettled job holds the same `unique_key`"""
    after: tuple[str, ...] = ()
    """ids of the jobs it waits for, stored or earlier in the same batch. The id of a job that clashed with a stored one
    stands for the stored one"""
    must_be_new: bool = False
    """refuse the whole batch with `AlreadySubmitted` if another job stands for it"""


class InsertResult(msgspec.Struct, gc=False):
    """The result of one new job: itself, or the stored job that stands for it."""

    id: str
    created: bool
    by: Literal["", "key", "unique"] = ""
    """which key led to the earlier job: the idempotency key (that job may be deleted since), or the unique key"""
    durability: str = ""
    """what the answer survives, in words: the requested level, and the level that the store is configured for. Set by
    control"""


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One compare-and-swap: `before` as the caller saw it, and the moves to make from it.

    The store applies the moves and seals their events with its own key (`lifecycle.apply`). So a caller needs neither
    the key nor the digests. It is written only if the stored version is still `before.version` and no counter would
    shrink. A change does not write the columns that a holder reports (progress, checkpoint).
    """

    before: Job
    moves: tuple[Move, ...]
    actor: str
    at_ms: int
    """when it was decided"""
    holder: str | None = None
    """set by a worker: the change is refused as stale unless this session still holds `before.token`"""
    spawn: tuple[NewJob, ...] = ()
    """jobs inserted in the same transaction, if and only if this change is applied"""
    on_last: Move | None = None
    """applied to the parent in the same transaction if this was its last unsettled unit"""


class SealedChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change with its result: `after`, `events` and `kind` from the machine. Stores make it of a `Change`; a caller
    sends one only if it kept the change in a file while the store was away."""

    before: Job
    after: Job
    events: tuple[Event, ...]
    kind: ChangeKind = "move"
    """An adapter may rely on it: it writes a `complete` without comparing `before` with `after`"""
    holder: str | None = None
    spawn: tuple[NewJob, ...] = ()
    on_last: Move | None = None

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
        """The change that writes the result of the machine."""
        return cls(
            before=before,
            after=moved.job,
            events=moved.events,
            kind=moved.kind,
            holder=holder,
            spawn=spawn,
            on_last=on_last,
        )


#: what `apply` takes
AnyChange = Change | SealedChange

Outcome = Literal["applied", "already_applied", "stale", "conflict", "missing", "invalid", "no_session", "withheld"]


class ChangeResult(msgspec.Struct, frozen=True, gc=False):
    """The result of one change.

    - applied: written, with its events
    - already_applied: the same change was written before (its result was lost), or it changes nothing; nothing was
      written now
    - stale: the holder lost its claim; only a refusal was written
    - conflict: another caller moved the row first; nothing was written. Decide again with `job`
    - missing: the row does not exist
    - invalid: the table does not allow its moves; `error` says why
    - no_session: it gives the row to a session that is not open
    - withheld: it would have been written, but another change of an `apply(together=True)` was not
    """

    outcome: Outcome
    job: Job | None = None
    """the row as it is now (for applied: `after`)"""
    last: bool = False
    """it was the last unsettled unit of its parent"""
    error: MainstayError | None = None
    resent: bool = False
    """the store has sent the call more than once, because an answer was lost: what was already applied may be its own
    work"""


Deletion = Literal["deleted", "held", "missing", "changed"]


class ClaimReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report of a holder between moves; refused unless it still holds the token.

    None leaves a value as it is. A report changes no version and writes no event.
    """

    job_id: str
    session: str
    token: int
    started_ms: int | None = None
    """the work began; counted in `starts` once per token"""
    progress: Progress | None = None
    checkpoint: bytes | None = None


class Overdue(msgspec.Struct, frozen=True):
    """A row for the sweeper: its session is dead, or its `expires_ms` has passed."""

    job: Job
    cause: Literal["session", "time"]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter; a field that is None does not filter. Results are ordered by id, newest first by default."""

    status: tuple[str, ...] | None = None
    kind: str | None = None
    queue: str | None = None
    name: str | None = None
    parent: str | None = None
    """units of this job; without it, units are left out, except in a query by session"""
    group: str | None = None
    """members of the group whose callback has this id"""
    session: str | None = None
    """the jobs and units that it holds"""
    tag: str | None = None
    key: str | None = None
    text: str | None = None
    """part of the id, name, reason or last error message"""
    created_from_ms: int | None = None
    created_before_ms: int | None = None
    oldest_first: bool = False
    value_bytes: int | None = None
    """longer payloads, results and checkpoints are left out of the rows (`omitted_values`); None: none is"""


class Page(msgspec.Struct, frozen=True):
    """Some rows, and where to continue; `cursor` is None on the last page."""

    jobs: list[Job]
    cursor: str | None


class RefusedWrite(msgspec.Struct, frozen=True):
    """A refused write of a session that had lost its claim; kept once per job and token."""

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
    """due time of the ready row that has waited longest"""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the store at a glance."""

    at_ms: int
    queues: dict[str, QueueStats]
    rates: dict[str, float]
    """moves into each status per minute, over the last four whole minutes and the current one; for a younger store,
    since its first job (at least ten seconds)"""
    submitted: float = 0.0
    """new jobs per minute, over the same time; units are not counted"""
    sessions: int
    aside: int
    """rows set aside because they could not be read"""
    findings: tuple[str, ...] = ()
    """findings of the quick check when the store was opened"""
    leader: str | None = None
    """the session that runs schedules, retention and checks; None: no session leads, which lasts only for seconds while
    workers run"""
    leads: dict[str, Leadership] = {}
    """the leaderships that are held now, by name"""
    routed: dict[str, dict[str, int]] = {}
    """by queue and task (`model.route_of`): jobs and units that wait for a session that offers their task"""


class TrimPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows may be removed. Never unsettled ones; a parent only with its units, when all are settled."""

    settled_before_ms: Mapping[str, int] = {}
    """per status: rows settled before this are removed. Rows with their own retention (`options.keep_s`) are removed
    when their `expires_ms` has passed, independent of this"""
    keep_count: Mapping[str, int] = {}
    """per status: how many of the newest rows stay"""
    keep_events: int | None = None
    """per job: how many of the newest events stay. Older ones are trimmed; the chain can still be checked"""
    batch: int = 1000
    """the most jobs that one call removes, and the most jobs whose events it trims"""


class Trimmed(msgspec.Struct, frozen=True):
    """The result of one call of `trim`; `more`: another call would remove more."""

    jobs: int
    events: int
    keys: int
    more: bool


#: a row before (None: it is new) and after a write, and the events written with it
Written = tuple[Job | None, Job, Sequence[Event]]
#: called with the rows that one commit wrote
Observer = Callable[[Sequence[Written]], None]


class JobRepository(Protocol):
    """The jobs of a store, with their events, keys and refusals."""

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        """Insert all or nothing. A key or unique clash returns the stored job, also for duplicates inside the batch.
        The same key with other content raises `KeyConflict`, a refused unique clash `UniqueClash`, an existing id
        `Conflict`. A unit whose parent is neither stored nor earlier in the batch raises `InvalidInput`, as does a job
        that waits for such a job. Each error names the index.

        A job that is stored already, with the same first event, was sent again because the answer was lost: it gets
        the same answer as the first time.

        A job may wait for jobs that have settled: it is judged at once, in the same transaction.

        `durability` replaces the level of the store's URL for this call. A level that `durability_of` refuses is
        refused here, too, with nothing written. With `lead`, raises `NotLeader` and writes nothing if that epoch is
        over."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Job | None]: ...

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page: ...

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        """Take up to n ready rows, lowest rank first over all the queues, for an open session.

        `model.PLACE_QUEUE` is refused: a leader assigns its rows. A claim with a `mark` can be
        sent again: the same session and mark get the same rows again, those that it still holds under the same token.
        The last `MARKS_KEPT` marks of a session are known. If the caller is cancelled, the rows of a claim without a
        mark are given back; those of a claim with one are kept for the call that is sent again.

        A session that was asked to drain gets no rows, except those of a mark that is known. (In a registry, whose
        sessions are not in its log, from the next heartbeat on if another process asked.)

        Due rows are promoted first (with their event). Paused queues are skipped. A session with an offer gets only
        rows of its tasks: other rows go to `Lane.ROUTED`, and come back when a session with their task claims
        (`routes`). A row whose concurrency key is at its limit goes to `Lane.BLOCKED`. A row past its `expires_ms` (its
        queue deadline) is left to the sweeper, so that a claim writes nothing but its own rows. A session that is dead
        or unknown raises `SessionLost`, even if there is nothing to claim: otherwise its worker would idle forever.
        """
        ...

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        """Judge and write each change on its own, all in one commit. With `lead`, raises `NotLeader` and writes nothing
        if that epoch is over. Frees concurrency slots: the best blocked row per queue becomes ready.

        With `together`, all changes are written or none: if one is neither applied nor already applied, the others are
        `withheld`. Only the refusals of stale changes are recorded then. A row may be in it once.

        A change that gives a row to another session is refused (`no_session`) if that session is not open.

        In the same commit, jobs that waited for a settled row move on as `change_check.dependant_move` decides, and in
        turn jobs that waited for those. The same holds for a sweep, a repair and a deletion."""
        ...

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        """Record start, progress and checkpoint; False if the token is no longer held. Progress moves `expires_ms`
        (`model.expiry`)."""
        ...

    async def due(self, queues: Sequence[str]) -> int | None:
        """The next time at which a waiting row of these queues becomes ready; None if none waits."""
        ...

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        """Declare sessions dead whose lease is over (or whose lock is free), then list rows held by dead sessions and
        unsettled rows past their `expires_ms`. From then on, beats of a dead session are refused.

        A store may have an attribute `look_again_s`. It is not None while a session is suspected to be dead: then it is
        the time after which to call this again, instead of at the next sweep."""
        ...

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events in order. A deleted job still has its tombstone."""
        ...

    async def refusals(self, job_id: str) -> list[RefusedWrite]: ...

    async def awaited(self, job_id: str) -> list[str]:
        """The ids of the jobs it waits for, or waited for, in the order they were given."""
        ...

    async def unit_counts(self, parent: str) -> dict[str, int]:
        """How many units of a job have each status; empty for a job that has none or does not exist. Its drivers
        (`model.driver_ids`) are not counted: they do not do the work of a unit."""
        ...

    async def stats(self) -> Stats: ...

    async def trim(self, policy: TrimPolicy, *, lead: Leadership | None = None) -> Trimmed:
        """Remove one batch of the rows that the policy names, and expired idempotency keys."""
        ...

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        """Delete unclaimed rows with their units and events; a tombstone event stays. A row that `versions` names is
        deleted only at that version; otherwise it stays, and the result is `changed`, even if it is held."""
        ...
