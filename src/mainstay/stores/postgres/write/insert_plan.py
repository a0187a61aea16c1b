"""The plan of an insert: the result of each new job, and the one statement that stores them.

Written as steps, for our own connections and for a user's open transaction (see `.steps`). The first statement tries to
store everything, which is the common case and costs one round trip. If it meets obstacles, it stores nothing and
returns them. Then the batch is planned again with these facts, in the given order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from ... import change_check
from ...port import InsertResult, Key, NewJob, Written
from ..rows.codec import Columns, count_arrays, event_arrays, is_id, job_arrays, spare
from .steps import Rows, Statement, Steps

_ARGUMENTS = 72
#: Returns the obstacles; without a row, all jobs were stored.
INSERT_JOBS = (
    f"SELECT what, at, id, content FROM mainstay.insert_jobs({', '.join(f'${n}' for n in range(1, _ARGUMENTS + 1))})"
)
#: The same; if the jobs were stored, the commit wakes one waiting listener, and a row `rung` is returned.
INSERT_AND_RING = (
    f"WITH i AS MATERIALIZED ({INSERT_JOBS}) SELECT what, at, id, content FROM i UNION ALL SELECT 'rung', 0, '', NULL "
    "WHERE CASE WHEN EXISTS (SELECT FROM i) THEN false "
    f"ELSE mainstay.ring_at_commit(${_ARGUMENTS + 1}, ${_ARGUMENTS + 2}) END"
)
#: Those of these jobs that already exist, with the digest of their first event (NULL: it was trimmed with later ones).
_EXISTING = (
    "SELECT g.id, coalesce(e.digest, CASE WHEN j.trimmed_seq = 1 THEN j.trimmed_digest END) "
    "FROM unnest($1::text[]) AS g (id) LEFT JOIN mainstay.jobs j ON j.id = g.id::uuid "
    "LEFT JOIN mainstay.events e ON e.job_id = g.id::uuid AND e.seq = 1 "
    "WHERE j.id IS NOT NULL OR e.job_id IS NOT NULL"
)


class InsertFacts:
    """What is known of the store: the obstacles that the insert has met so far."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.uniques: dict[str, str] = {}
        self.missing: set[str] = set()
        """ids of parents and awaited jobs that do not exist"""
        self.over: dict[str, None] = {}
        """awaited jobs that are settled"""
        self.taken: dict[str, bytes | None] | None = None
        """new ids that already exist, with the digest of their first event; None: not known yet"""
        self.held_by_others = False
        """whether a job that is not of this batch holds a key of it"""

    def was_inserted(self, new: NewJob) -> bool:
        """Whether this very job is stored: it was sent again because the answer was lost."""
        return self.taken is not None and self.taken.get(new.job.id) == new.events[0].digest

    def learn(self, rows: Rows, plan: PostgresInsertPlan) -> None:
        for what, at, job_id, content in rows:
            if what == "key":
                key = plan.keyed[at - 1].key
                assert key is not None
                self.keys[key.scope, key.name] = (bytes(content), job_id)
                self.held_by_others |= job_id not in plan.ids
            elif what == "unique":
                self.uniques[plan.uniques[at - 1]] = job_id
                self.held_by_others |= job_id not in plan.ids
            elif what == "over":
                self.over[job_id] = None
            else:
                self.missing.add(job_id)


class PostgresInsertPlan:
    """A planned batch: the result of each job, and what has to be stored."""

    def __init__(self, jobs: Sequence[NewJob], facts: InsertFacts) -> None:
        self.answers: list[InsertResult] = []
        self.fresh: list[NewJob] = []
        self.edges: list[tuple[str, int, str]] = []
        """(waiting job, place, awaited job)"""
        self._facts = facts
        self._keys = change_check.BatchKeys(lambda key: facts.keys.get((key.scope, key.name)), facts.uniques.get)
        self._stands: dict[str, str] = {}
        """earlier job of the batch -> the one that stands for it: itself, or one that was stored before"""
        self._parents: dict[str, None] = {}
        self._awaits: dict[str, None] = {}
        """awaited jobs outside of the batch, which must exist"""
        self.ids = {new.job.id for new in jobs}
        for index, new in enumerate(jobs):
            self._judge(index, new)
        self.keyed = [new for new in self.fresh if new.key is not None]
        self.uniques = [new.job.unique_key for new in self.fresh if new.job.unique_key is not None]

    @property
    def written(self) -> list[Written]:
        return [(None, new.job, new.events) for new in self.fresh]

    def arguments(self, *, judged: bool, given_ms: int | None, counted: bool = True) -> tuple[Any, ...]:
        """The arguments of `INSERT_JOBS`. `judged`: the caller moves jobs on that wait for settled ones, in the same
        transaction. Not `counted`: the caller updates the tallies, too."""
        keys: list[tuple[str, Key]] = [(new.job.id, new.key) for new in self.fresh if new.key is not None]
        tags = [(new.job.id, tag) for new in self.fresh for tag in new.job.options.tags]
        return (
            *spare(job_arrays(self.fresh)),
            *spare(event_arrays(event for new in self.fresh for event in new.events)),
            [job_id for job_id, _ in keys],
            [key.scope for _, key in keys],
            [key.name for _, key in keys],
            [key.content for _, key in keys],
            [key.until_ms for _, key in keys],
            self.uniques,
            list(self._parents),
            [job_id for job_id, _ in tags],
            [tag for _, tag in tags],
            [job_id for job_id, _, _ in self.edges],
            [place for _, place, _ in self.edges],
            [on for _, _, on in self.edges],
            list(self._awaits),
            judged,
            *(counts(self.written) if counted else NO_COUNTS),
            given_ms,
        )

    def _judge(self, index: int, new: NewJob) -> None:
        job = new.job
        if self._facts.was_inserted(new):
            self._stands[job.id] = job.id
            self.answers.append(InsertResult(job.id, True))
            return
        if (new.key is not None or job.unique_key is not None) and (held := self._keys.holder(index, new)) is not None:
            self._met(index, new, *held)
            return
        if job.parent is not None and self._stands.get(job.parent) != job.parent:
            if job.parent in self._facts.missing or not is_id(job.parent):
                raise change_check.no_parent(index, job.parent)
            self._parents[job.parent] = None
        after = dict.fromkeys(self._awaited(index, place, on) for place, on in enumerate(new.after))
        if job.id in self._stands or job.id in (self._facts.taken or ()):
            raise change_check.id_conflict(index, job.id)
        self._stands[job.id] = job.id
        self.answers.append(InsertResult(job.id, True))
        self.fresh.append(new)
        self.edges += [(job.id, place, on) for place, on in enumerate(after)]

    def _met(self, index: int, new: NewJob, held: str, by: Literal["key", "unique"]) -> None:
        self._stands[new.job.id] = held
        if held == new.job.id:  # it was stored before, and the result was lost
            self.answers.append(InsertResult(held, True))
            return
        if new.must_be_new:
            raise change_check.already_there(index, held)
        self.answers.append(InsertResult(held, False, by))

    def _awaited(self, index: int, place: int, on: str) -> str:
        stands = self._stands.get(on)
        if stands is not None:
            return stands
        # itself, or a later job of the batch, does not exist yet
        if on in self._facts.missing or on in self.ids or not is_id(on):
            raise change_check.no_dependency(index, place, on)
        self._awaits[on] = None
        return on


def insert_steps(
    jobs: Sequence[NewJob], facts: InsertFacts, *, given_ms: int | None, judged: bool = False, counted: bool = True
) -> Steps[PostgresInsertPlan]:
    """Store a batch, in one statement unless there are obstacles. If this raises, nothing was written.

    Without `judged` it stops, with nothing written, at the first job that waits for a settled one. Then `facts.over` is
    not empty, and the steps must run again with `judged`, in a transaction of several statements.
    """
    while True:
        plan = PostgresInsertPlan(jobs, facts)
        if not plan.fresh:
            return plan
        rows = yield Statement(INSERT_JOBS, plan.arguments(judged=judged, given_ms=given_ms, counted=counted))
        if not rows:
            return plan
        facts.learn(rows, plan)
        if facts.over and not judged:
            return plan
        if facts.held_by_others and facts.taken is None:
            # a job that was sent again may have settled since, and another one may have taken its key
            yield from clash_steps(jobs, facts)


def clash_steps(jobs: Sequence[NewJob], facts: InsertFacts) -> Steps[None]:
    """Find out which ids already exist. If none does after a unique violation, another transaction stored the same key
    at the same time, and the next statement will find it."""
    rows = yield Statement(_EXISTING, ([new.job.id for new in jobs],))
    facts.taken = {job_id: None if digest is None else bytes(digest) for job_id, digest in rows}


# -- counting ------------------------------------------------------------------------------------

#: for an insert whose caller updates the tallies
NO_COUNTS: Columns = [[], [], [], [], []]


def counts(written: Sequence[Written]) -> Columns:
    """What these writes add to the tallies and to the rates, as arguments of a function."""
    tallies: Counter[tuple[str, str]] = Counter()
    # most jobs of a batch are alike, so they are counted together first
    alike = Counter(
        (after.queue, None if before is None else before.status, after.status)
        for before, after, _ in written
        if after.parent is None
    )
    for (queue, was, status), n in alike.items():
        if was != status:
            tallies[queue, status] += n
            if was is not None:
                tallies[queue, was] -= n
    entered = Counter(
        state for _, after, events in written if after.parent is None for state in change_check.entered(events)
    )
    return count_arrays(tallies, entered)


__all__ = [
    "INSERT_AND_RING",
    "INSERT_JOBS",
    "NO_COUNTS",
    "InsertFacts",
    "PostgresInsertPlan",
    "clash_steps",
    "counts",
    "insert_steps",
]
