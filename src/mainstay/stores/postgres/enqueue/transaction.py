"""Jobs that are stored by a transaction of the user's own, on any connection.

There are three statements: read the time and the version of the store, store the jobs, and notify listeners at the
commit. A job with a key, or one that waits for others, may have to wait for another transaction, and may lose against
it. A savepoint protects the user's transaction from that, and the wait is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ....clock import Clock, SystemClock
from ....errors import Conflict, MainstayError
from ....lifecycle import Chain
from ....model import PLACE_MS
from ... import change_check
from ...audit_key import admit_fingerprint
from ...durability import Durability
from ...port import InsertResult, NewJob
from ...server_clock import ServerClock
from ..connection.address import PostgresAddress, parse
from ..connection.durability import COMMITS, SETTINGS, promised
from ..schema.definition import function_text, placed
from ..schema.versions import FACTS, SchemaFacts
from ..write.insert_plan import INSERT_JOBS, InsertFacts, PostgresInsertPlan, clash_steps, insert_steps
from ..write.steps import InsertClash, Statement, Steps

T = TypeVar("T")

_ARRIVE = (
    "SELECT mainstay.clock($1::bigint), current_setting('lock_timeout'), current_setting('transaction_isolation'), "
    "(SELECT value FROM mainstay.facts WHERE name = 'audit'), "
    + "".join(f"(SELECT value FROM mainstay.facts WHERE name = '{name}'), " for name in FACTS)
    + "".join(f"current_setting('{name}'), " for name in SETTINGS)
    + "mainstay.count_apart()::text"
)
_BEGIN_AUDIT = "INSERT INTO mainstay.facts VALUES ('audit', $1::text) ON CONFLICT (name) DO NOTHING RETURNING value"
_AUDIT = "SELECT value FROM mainstay.facts WHERE name = 'audit'"
_WAIT = "SELECT set_config('lock_timeout', $1::text, true)"
#: the commit is the user's: its level is raised for the jobs in it, never lowered
_COMMITS = "ARRAY['off', 'local', 'remote_write', 'on', 'remote_apply']"
_FINISH = (
    "SELECT mainstay.tell_at_commit($1::text[])::text, set_config('lock_timeout', $2::text, true), "
    "set_config('synchronous_commit', "
    f"({_COMMITS})[greatest(array_position({_COMMITS}, current_setting('synchronous_commit')), "
    f"array_position({_COMMITS}, $3::text))], true)"
)
_DONE = (
    "UPDATE mainstay.waits w SET done = true FROM unnest($1::text[], $2::text[]) AS g (job_id, on_id) "
    "WHERE w.job_id = g.job_id::uuid AND w.on_id = g.on_id::uuid RETURNING 1"
)
_STATUSES = "SELECT id::text, status FROM mainstay.jobs WHERE id = ANY ($1::text[]::uuid[])"
_AWAITED = "SELECT on_id::text FROM mainstay.waits WHERE job_id = $1::text::uuid ORDER BY place"
_SAVEPOINT, _BACK, _RELEASE = (
    Statement(f"{words} mainstay_submit") for words in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)
#: how often another transaction may store the same key between our read and our write
_MOST_RACES = 20


class _TransactionSettings(msgspec.Struct):
    """The settings of the user's transaction."""

    lock_timeout: str
    isolation: str
    settings: Mapping[str, str]


class TransactionalEnqueue:
    """Stores jobs in one store, within transactions of users. Its methods return steps for the connection of such a
    transaction; `written` converts each statement for the driver."""

    def __init__(self, address: PostgresAddress, clock: Clock | None) -> None:
        self._address = address
        # the server's time, unless a test has its own clock
        self._clock = None if isinstance(clock, SystemClock | ServerClock) else clock
        self._settings = _TransactionSettings("0", "", {})

    @classmethod
    def into(cls, url: str, *, clock: Clock | None) -> TransactionalEnqueue:
        """For the store of a URL."""
        return cls(parse(url, dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))), clock)

    def arrive(self, fingerprint: str) -> Steps[int]:
        """Check that this store can be written to; returns the time. `fingerprint` is that of the audit key."""
        given_ms = None if self._clock is None else self._clock.now_ms()
        [(now_ms, lock_timeout, isolation, audit, *values, _)] = yield Statement(_ARRIVE, (given_ms,))
        facts, values = values[: len(FACTS)], values[len(FACTS) :]
        self._settings = _TransactionSettings(lock_timeout, isolation, dict(zip(SETTINGS, values, strict=True)))
        found = SchemaFacts.of(dict(zip(FACTS, facts, strict=True)))
        found.refuse_newer(self._place)
        found.refuse_older(self._place, "mainstay store migrate URL")
        if audit is None:
            yield Statement(_BEGIN_AUDIT, (fingerprint,))
            [(audit,)] = yield Statement(_AUDIT)
        admit_fingerprint(audit, fingerprint, self._place)
        return int(now_ms)

    def insert(
        self, jobs: Sequence[NewJob], *, chain: Chain, durability: Durability | None
    ) -> Steps[tuple[list[InsertResult], str]]:
        """Store all or nothing; returns the results, and their durability in words. A refusal leaves the transaction as
        it was."""
        if any(new.key is not None or new.job.unique_key is not None or new.after for new in jobs):
            plan, commit = yield from self._insert_guarded(jobs, chain, durability)
        else:
            plan = yield from insert_steps(jobs, InsertFacts(), given_ms=self._given_ms(jobs))
            commit = yield from self._finish(plan, durability)
        return plan.answers, self._promised(durability, commit)

    def awaited(self, job_id: str) -> Steps[list[str]]:
        """The ids of the jobs it waits for, or waited for, in the order they were given."""
        rows = yield Statement(_AWAITED, (job_id,))
        return [on for (on,) in rows]

    def written(self, statement: Statement) -> Statement:
        """A statement for the driver: with the real name of the schema, and the types of its arguments."""
        if statement.sql != INSERT_JOBS:
            return Statement(placed(statement.sql, self._address.schema), statement.args)
        args = tuple(_FORMS.get(kind, _as_is)(arg) for kind, arg in zip(_insert_types(), statement.args, strict=True))
        return Statement(placed(_insert_typed(), self._address.schema), args)

    # -- internals ----------------------------------------------------------------------------

    def _insert_guarded(
        self, jobs: Sequence[NewJob], chain: Chain, durability: Durability | None
    ) -> Steps[tuple[PostgresInsertPlan, str]]:
        facts = InsertFacts()
        known = False
        """whether the obstacles that this transaction can see are known"""
        for _ in range(_MOST_RACES):
            yield _SAVEPOINT
            try:
                # undone with the savepoint, or by `_finish`
                yield Statement(_WAIT, (f"{round(self._address.lock_timeout_s * 1000)}ms",))
                plan = yield from self._enter(jobs, facts, chain)
                commit = yield from self._finish(plan, durability)
            except InsertClash:
                yield _BACK
                yield _RELEASE
                if known and self._settings.isolation != "read committed":
                    raise Conflict(
                        f"job {jobs[0].job.id}: another transaction stored its key after yours began, and yours cannot "
                        f"see it ({self._settings.isolation}); nothing of the job was written. Run your transaction "
                        "again from its beginning"
                    ) from None
                known = True
                yield from clash_steps(jobs, facts)
                continue
            except MainstayError:
                yield _BACK
                yield _RELEASE
                raise
            yield _RELEASE
            return plan, commit
        raise Conflict(
            f"job {jobs[0].job.id}: other transactions kept storing the same keys; nothing was written. Try again"
        )

    def _enter(self, jobs: Sequence[NewJob], facts: InsertFacts, chain: Chain) -> Steps[PostgresInsertPlan]:
        given_ms = self._given_ms(jobs)
        plan = yield from insert_steps(jobs, facts, given_ms=given_ms)
        if not facts.over:
            return plan
        # the jobs they wait for are settled, and locked. So the new jobs are judged before they are stored
        rows = yield Statement(_STATUSES, (list(facts.over),))
        found: dict[str, str] = dict(rows)
        # a deleted one is known by its key
        over = {on: found.get(on, change_check.GONE) for on in facts.over}
        judged, done = _judged(plan, over, chain)
        by_id = {new.job.id: new for new in judged}
        moved = [by_id.get(new.job.id, new) for new in jobs]
        plan = yield from insert_steps(moved, facts, given_ms=given_ms, judged=True)
        yield Statement(_DONE, ([job_id for job_id, _ in done], [on for _, on in done]))
        return plan

    def _finish(self, plan: PostgresInsertPlan, durability: Durability | None) -> Steps[str]:
        due = [new.job.queue for new in plan.fresh if new.job.lane and new.job.due_ms < PLACE_MS]
        least = "off" if durability is None else COMMITS[durability]
        rows = yield Statement(_FINISH, (list(dict.fromkeys(due)), self._settings.lock_timeout, least))
        return str(rows[0][2])

    def _promised(self, level: Durability | None, commit: str) -> str:
        settings = {**self._settings.settings, "synchronous_commit": commit}
        reached = level if level is not None and COMMITS[level] == commit else None
        return f"once your transaction is committed, {promised(reached, settings)}"

    def _given_ms(self, jobs: Sequence[NewJob]) -> int | None:
        return None if self._clock is None else jobs[0].job.created_ms

    @property
    def _place(self) -> str:
        return f"schema {self._address.schema!r} of {self._address.shown}"


def _judged(
    plan: PostgresInsertPlan, statuses: dict[str, str], chain: Chain
) -> tuple[list[NewJob], list[tuple[str, str]]]:
    """The new jobs after they were judged by the jobs they wait for, in order; and the edges that are closed:
    (waiting job, awaited job)."""
    over = dict(statuses)
    awaited: dict[str, list[str]] = {}
    for job_id, _, on in plan.edges:
        awaited.setdefault(job_id, []).append(on)
    judged: list[NewJob] = []
    done: list[tuple[str, str]] = []
    for new in plan.fresh:
        edges = awaited.get(new.job.id, [])
        ended = [on for on in edges if on in over]
        job, events = new.job, new.events
        for place, on in enumerate(ended):
            more = len(edges) > place + 1
            moved = change_check.dependant_move(job, on, over[on], more=more, now_ms=job.created_ms, chain=chain)
            if moved is not None:
                job, events = moved.job, (*events, *moved.events)
        done += [(job.id, on) for on in ended]
        if change_check.is_settled(job):
            over[job.id] = job.status
        judged.append(msgspec.structs.replace(new, job=job, events=events))
    return judged, done


# -- arguments of drivers --------------------------------------------------------------------


@cache
def _insert_types() -> tuple[str, ...]:
    """The types of the arguments of `insert_jobs`, from its declaration. A driver that infers them from the values is
    wrong for lists of small numbers, or with nothing but None."""
    text = function_text("insert_jobs")
    declared = text[text.index("insert_jobs(") : text.index(") RETURNS")]
    return tuple(re.findall(r"\w+ ((?:text|integer|bigint|smallint|bytea|boolean)(?:\[\])?)(?=[,\n])", declared))


@cache
def _insert_typed() -> str:
    types = _insert_types()
    return re.sub(r"\$(\d+)", lambda found: f"{found[0]}::{types[int(found[1]) - 1]}", INSERT_JOBS)


def _whole(values: Sequence[int | None]) -> list[int | None]:
    return [None if value is None else int(value) for value in values]  # some drivers refuse a Lane


def _as_is(value: Any) -> Any:
    return value


_FORMS: dict[str, Callable[[Any], Any]] = {
    "text[]": list,
    "bytea[]": list,
    "integer[]": _whole,
    "bigint[]": _whole,
    "smallint[]": _whole,
}
