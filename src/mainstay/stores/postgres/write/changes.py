"""Inserts and changes.

Two functions on the server write changes. One takes completions, which have little data and are most of all writes
(`completions`); the other takes any change (`statements.APPLY`). Both write a batch in one round trip and one commit if
it needs no decision. If it does (a row is not as its caller saw it, a job waits for it and must move on, a slot becomes
free, it may be the last unit of a job), they write nothing. Then it is decided here, in a transaction of several
statements that writes with the second function.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg
import msgspec

from ....errors import Conflict, InvalidInput, StoreError, StoreLocked
from ....lifecycle import Chain, Event
from ....model import Job, Lane, Leadership
from ... import change_check
from ...durability import Durability
from ...port import ChangeResult, InsertResult, NewJob, SealedChange, Written
from ..connection.engine import PostgresEngine, PostgresTx, sooner_than_others
from ..rows.codec import (
    SELECT_EVENT,
    SELECT_JOB,
    are_ids,
    event_from,
    is_id,
    readable_job,
    stored_ids,
    stored_text,
)
from . import waits
from .completions import COMPLETE, completion_arguments
from .insert_plan import (
    INSERT_AND_RING,
    INSERT_JOBS,
    InsertFacts,
    PostgresInsertPlan,
    clash_steps,
    counts,
    insert_steps,
)
from .selection import free_slots
from .statements import (
    APPLY,
    LEADERSHIP,
    change_arguments,
    fence,
    leadership_from,
    savepoint,
    take_steps,
    write_changes,
)

log = logging.getLogger("mainstay.stores.postgres")

#: those of these rows that no other transaction has locked
_FREE = "SELECT id::text FROM mainstay.jobs WHERE id = ANY ($1::text[]::uuid[]) FOR UPDATE SKIP LOCKED"
#: how often another transaction may store the same key between our read and our write
_MOST_RACES = 20


# -- inserting --------------------------------------------------------------------------------


async def insert(
    engine: PostgresEngine,
    jobs: Sequence[NewJob],
    chain: Chain,
    *,
    durability: Durability | None = None,
    lead: Leadership | None = None,
) -> list[InsertResult]:
    """Insert all or nothing."""
    facts = InsertFacts()

    async def run(tx: PostgresTx) -> list[InsertResult]:
        await fence(tx, lead)
        return await insert_within(tx, jobs, chain, facts)

    for _ in range(_MOST_RACES):
        try:
            if lead is None:
                answers = await _insert_at_once(engine, jobs, facts, durability)
                if not facts.over:
                    return answers
            return await engine.transact(run, durability=durability)
        except StoreError as error:
            if not _is_unique_violation(error.__cause__):
                raise
        await engine.read_loosely(lambda db: take_steps(db, clash_steps(jobs, facts)))
    raise Conflict(
        f"job {jobs[0].job.id}: other transactions kept storing the same keys; nothing was written. Try again"
    )


async def insert_within(
    tx: PostgresTx, jobs: Sequence[NewJob], chain: Chain, facts: InsertFacts | None = None
) -> list[InsertResult]:
    """Insert all or nothing, as part of a transaction that must be rolled back if this raises."""
    if not jobs:
        return []
    facts = facts or InsertFacts()
    plan = await take_steps(tx.db, insert_steps(jobs, facts, given_ms=tx.now_ms, judged=True, counted=False))
    tx.wrote(plan.written)
    if plan.edges:
        fresh = {new.job.id for new in plan.fresh}
        # rows of this batch are unsettled, unless the jobs they wait for settle them: `follow` does that
        awaited = dict.fromkeys(on for _, _, on in plan.edges if on not in fresh)
        await waits.follow(tx, await waits.over_by_now(tx, list(awaited)), chain)
    return plan.answers


async def _insert_at_once(
    engine: PostgresEngine, jobs: Sequence[NewJob], facts: InsertFacts, durability: Durability | None
) -> list[InsertResult]:
    """Store them in one statement, or collect the obstacles in `facts`."""
    steps = insert_steps(jobs, facts, given_ms=engine.given_ms)
    topic = f"queue:{jobs[0].job.queue}"
    ringer = engine.ringer(topic) if len(jobs) == 1 and jobs[0].job.lane == Lane.READY else None
    rung: Counter[str] = Counter()
    try:
        statement = next(steps)
        while True:
            if ringer is None or statement.sql != INSERT_JOBS:
                rows = await engine.call(statement.sql, *statement.args, durability=durability)
            else:
                rows = await engine.call(INSERT_AND_RING, *statement.args, topic, ringer, durability=durability)
                rung[topic] -= sum(row[0] == "rung" for row in rows)
            statement = steps.send([row for row in rows if row[0] != "rung"])
    except StopIteration as done:
        plan: PostgresInsertPlan = done.value
        if not facts.over:
            await notify(engine, plan.written, rung)
        return plan.answers


def _is_unique_violation(error: BaseException | None) -> bool:
    return isinstance(error, asyncpg.UniqueViolationError)


# -- changing ---------------------------------------------------------------------------------


async def apply(
    engine: PostgresEngine,
    changes: Sequence[SealedChange],
    chain: Chain,
    *,
    lead: Leadership | None = None,
    together: bool = False,
) -> list[ChangeResult]:
    """Judge and write each change on its own, all in one commit; or `together` all or none. Plain moves of different
    rows, the common case, are one statement.

    If another transaction keeps a row locked, the other changes are written before this raises `StoreLocked`. Sent
    again, they are `already_applied`."""
    if not changes and lead is None:
        return []
    try:
        return await _apply(engine, changes, chain, lead, together=together)
    except StoreLocked:
        if together:
            raise
        free = await engine.call(_FREE, stored_ids(change.after.id for change in changes))
        ids = {row[0] for row in free}
        loose = [change for change in changes if change.after.id in ids]
        if loose and len(loose) < len(changes):
            await _apply(engine, loose, chain, lead, together=False)
        raise


async def _apply(
    engine: PostgresEngine, changes: Sequence[SealedChange], chain: Chain, lead: Leadership | None, *, together: bool
) -> list[ChangeResult]:
    if lead is None and (arguments := completion_arguments(changes)) is not None:
        [(done,)] = await engine.call(COMPLETE, *arguments, engine.given_ms)
        if done:
            engine.committed([(change.before, change.after, change.events) for change in changes])
            return [ChangeResult("applied", change.after) for change in changes]
    if (
        changes
        and _go_together(changes)
        and not any(change_check.affected(changes))
        # one of the others may free the key: whether both fit would depend on their order
        and not (together and any(map(change_check.taken_again, changes)))
    ):
        written: list[Written] = [(change.before, change.after, change.events) for change in changes]
        [(verdict,)] = await engine.call(APPLY, *_arguments(engine, changes, written, lead))
        if verdict == "":
            await notify(engine, written)
            return [ChangeResult("applied", change.after) for change in changes]
        if verdict == "leader":
            assert lead is not None
            rows = await engine.call(LEADERSHIP, stored_text(lead.name))
            raise change_check.not_leader(lead, leadership_from(lead, rows, engine.clock.lease_ms()))

    async def run(tx: PostgresTx) -> list[ChangeResult]:
        await fence(tx, lead)
        return await (_apply_together if together else apply_changes)(tx, changes, chain)

    return await engine.transact(run)


def _go_together(changes: Sequence[SealedChange]) -> bool:
    """Whether these are moves of different rows that insert no jobs, by callers that saw themselves as the holder. A
    note needs the row: it keeps what the holder has reported since."""
    for change in changes:
        if change.spawn or change.kind == "note" or not _claims_to_fit(change):
            return False
    return are_ids([change.after.id for change in changes])


def _claims_to_fit(change: SealedChange) -> bool:
    """Whether the caller saw itself as the holder. The comparison with the row shows whether it is."""
    return bool(change.events) and (change.holder is None or change.before.session == change.holder)


def _arguments(
    engine: PostgresEngine, changes: Sequence[SealedChange], written: Sequence[Written], lead: Leadership | None
) -> list[Any]:
    settled = [change.after for change in changes if change.after.settled_ms is not None]
    return [
        *change_arguments(changes),
        [job.id for job in settled],
        all(change_check.keeps_waiting(status, more=True) for status in {job.status for job in settled}),
        None if lead is None else lead.name,
        None if lead is None else lead.holder,
        None if lead is None else lead.epoch,
        *counts(written),
        engine.given_ms,
        engine.given_lease_ms,
    ]


async def apply_changes(tx: PostgresTx, changes: Sequence[SealedChange], chain: Chain) -> list[ChangeResult]:
    """Write changes as part of a transaction: all at once if the rows are as their callers saw them; otherwise with the
    rows locked and each change judged."""
    if _go_together(changes) and await write_changes(tx, changes):
        return await _applied(tx, changes, chain)
    answers: list[ChangeResult] = []
    for batch in _batches(changes):
        answers += await _apply_judged(tx, batch, chain)
    return answers


def _batches(changes: Sequence[SealedChange]) -> list[list[SealedChange]]:
    """Changes in their order, divided where a row comes again. A change that inserts jobs is a batch of its own, so
    that it can be undone if they are refused."""
    batches: list[list[SealedChange]] = []
    seen: set[str] = set()
    for change in changes:
        if not batches or change.spawn or batches[-1][-1].spawn or change.after.id in seen:
            batches.append([])
            seen = set()
        batches[-1].append(change)
        seen.add(change.after.id)
    return batches


class _Judged(NamedTuple):
    """Changes of different rows, judged with the rows locked."""

    rows: dict[str, Job]
    refused: dict[str, ChangeResult]
    fitting: list[SealedChange]

    def conflict(self, change: SealedChange) -> ChangeResult:
        return ChangeResult("conflict", self.rows[change.after.id])


async def _judge(tx: PostgresTx, changes: Sequence[SealedChange], chain: Chain) -> _Judged:
    rows = await _locked(tx, [change.after.id for change in changes], chain)
    given = {holder for change in changes if (holder := change_check.new_holder(change)) is not None}
    not_open = await tx.db.fetchval("SELECT mainstay.not_open($1)", sorted(given)) if given else []
    judged = _Judged(rows, {}, [])
    for change in changes:
        row = rows.get(change.after.id)
        if row is None or change_check.judge(row, change, ()) != "applied":
            judged.refused[change.after.id] = await _refused(tx, row, change)
        elif change_check.new_holder(change) in not_open:
            judged.refused[change.after.id] = ChangeResult("no_session", row)
        else:
            judged.fitting.append(msgspec.structs.replace(change, after=change_check.landed(row, change)))
    return judged


async def _apply_judged(tx: PostgresTx, changes: Sequence[SealedChange], chain: Chain) -> list[ChangeResult]:
    """Changes of different rows: lock the rows, refuse the changes that do not fit, write the others."""
    judged = await _judge(tx, changes, chain)
    answers, fitting = judged.refused, judged.fitting
    refused = await _write_with_spawn(tx, fitting, chain)
    if refused is None:
        answers |= await _applied_by_id(tx, fitting, chain)
    elif len(fitting) == 1:
        answers[refused.after.id] = judged.conflict(refused)
    else:
        # one of them has a unique key with a new holder: written alone, it is found
        for change in fitting:
            [answers[change.after.id]] = await _apply_judged(tx, [change], chain)
    return [answers[change.after.id] for change in changes]


async def _apply_together(tx: PostgresTx, changes: Sequence[SealedChange], chain: Chain) -> list[ChangeResult]:
    """Changes of different rows: lock the rows, and write all changes that are not written yet, or none. Only the
    refusals of stale changes are written in any case."""
    judged = await _judge(tx, changes, chain)
    answers, fitting = judged.refused, judged.fitting
    clashing = change_check.retakes(fitting, await _held_uniques(tx, fitting))
    answers |= {change.after.id: judged.conflict(change) for change in fitting if change.after.id in clashing}
    if all(answer.outcome == "already_applied" for answer in answers.values()):
        refused = await _write_with_spawn(tx, fitting, chain)
        if refused is None:
            answers |= await _applied_by_id(tx, fitting, chain)
        else:
            answers[refused.after.id] = judged.conflict(refused)
    ids = [change.after.id for change in changes]
    return [answers.get(job_id) or ChangeResult("withheld", judged.rows[job_id]) for job_id in ids]


async def _held_uniques(tx: PostgresTx, changes: Sequence[SealedChange]) -> set[str]:
    """The unique keys that these changes would take again, but other jobs hold."""
    wanted = [key for change in changes if (key := change_check.taken_again(change)) is not None]
    if not wanted:
        return set()
    rows = await tx.db.fetch(
        "SELECT unique_key FROM mainstay.jobs WHERE unique_key = ANY ($1::text[]) AND settled_ms IS NULL", wanted
    )
    return {row[0] for row in rows}


async def _write_with_spawn(tx: PostgresTx, changes: Sequence[SealedChange], chain: Chain) -> SealedChange | None:
    """Write changes that fit, and insert their spawned jobs. If a unique key has a new holder, or jobs are refused,
    nothing is written, and the change is returned that was refused."""
    if not changes:
        return None
    suspect = next(
        (change for change in reversed(changes) if change_check.taken_again(change) is not None), changes[-1]
    )
    if not any(change.spawn for change in changes):
        return None if await write_changes(tx, changes) else suspect
    written, tallies, entered, woken = len(tx.written), tx.tallies.copy(), tx.entered.copy(), tx.woken.copy()
    known: dict[str, InsertFacts] = {}
    while True:
        refused = suspect
        try:
            async with savepoint(tx.db):
                if not await write_changes(tx, changes):
                    return refused
                for refused in changes:
                    if refused.spawn:
                        await insert_within(tx, refused.spawn, chain, known.get(refused.after.id))
            return None
        except (asyncpg.UniqueViolationError, Conflict, InvalidInput) as error:
            tx.tallies, tx.entered, tx.woken = tallies.copy(), entered.copy(), woken.copy()
            del tx.written[written:]
            if not _is_unique_violation(error) or refused.after.id in known:
                return refused
        # some of its jobs may have been inserted before
        known[refused.after.id] = facts = InsertFacts()
        await take_steps(tx.db, clash_steps(refused.spawn, facts))


async def _applied(tx: PostgresTx, changes: Sequence[SealedChange], chain: Chain) -> list[ChangeResult]:
    last = await _follow_up(tx, changes, chain) if changes else set()
    return [ChangeResult("applied", change.after, change.after.id in last) for change in changes]


async def _applied_by_id(tx: PostgresTx, changes: Sequence[SealedChange], chain: Chain) -> dict[str, ChangeResult]:
    answers = await _applied(tx, changes, chain)
    return {change.after.id: answer for change, answer in zip(changes, answers, strict=True)}


async def _refused(tx: PostgresTx, row: Job | None, change: SealedChange) -> ChangeResult:
    """The result of a change that did not fit."""
    since = await _events_since(tx, change) if row is not None else []
    outcome = change_check.judge(row, change, since)
    if outcome == "stale":
        refusal = change_check.refusal(change, tx.now_ms)
        await tx.db.execute(
            "INSERT INTO mainstay.refusals (job_id, token, session, wanted, at_ms) "
            "VALUES ($1::text::uuid, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
            refusal.job_id,
            refusal.token,
            refusal.session,
            refusal.wanted,
            refusal.at_ms,
        )
    return ChangeResult(outcome, row)


async def _events_since(tx: PostgresTx, change: SealedChange) -> list[Event]:
    rows = await tx.db.fetch(
        f"{SELECT_EVENT} WHERE job_id = $1::text::uuid AND seq > $2 ORDER BY seq LIMIT $3",
        change.after.id,
        change.before.version,
        change_check.SINCE,
    )
    return [event_from(row) for row in rows]


async def _locked(tx: PostgresTx, ids: Sequence[str], chain: Chain) -> dict[str, Job]:
    """The current rows, locked until the transaction ends."""
    rows = await tx.db.fetch(
        f"{SELECT_JOB} WHERE id = ANY ($1::text[]::uuid[]) ORDER BY id FOR UPDATE",
        [each for each in ids if is_id(each)],
    )
    return {row[0]: readable_job(row, chain)[0] for row in rows}


async def _follow_up(tx: PostgresTx, written: Sequence[SealedChange], chain: Chain) -> set[str]:
    """The consequences of applied changes: counts, wakes, dependants, parents, freed slots.

    Returns the ids of the units that were the last open ones of their parents."""
    tx.wrote([(change.before, change.after, change.events) for change in written])
    keys, last_units = change_check.affected(written)
    await waits.settle(tx, [change.after for change in written], chain)
    last = await _closed(tx, last_units, chain) if last_units else set()
    # after all row locks: a transaction with the lock of a key waits for no row
    for key in sorted(keys):
        await free_slots(tx, key)
    return last


async def _closed(tx: PostgresTx, last_units: Mapping[str, SealedChange], chain: Chain) -> set[str]:
    """The ids of the units whose parent has no open unit left; then its `on_last` move is made here.

    The rows of the parents are locked first: if the last two units settle at once, the second to lock it sees the
    first."""
    parents = await _locked(tx, list(last_units), chain)
    rows = await tx.db.fetch(
        "SELECT g.id FROM unnest($1::text[]) AS g (id) WHERE NOT EXISTS ("
        "SELECT FROM mainstay.jobs j WHERE j.parent = g.id::uuid AND j.settled_ms IS NULL)",
        list(last_units),
    )
    last = set()
    moves = []
    for (parent_id,) in rows:
        change = last_units[parent_id]
        last.add(change.after.id)
        parent = parents.get(parent_id)
        moved = change_check.parent_move(parent, change, tx.now_ms, chain)
        if parent is not None and moved is not None:
            moves.append(SealedChange.of(parent, moved))
    if moves:
        await apply_changes(tx, moves, chain)
    return last


# -- notifying --------------------------------------------------------------------------------


async def notify(engine: PostgresEngine, written: Sequence[Written], rung: Counter[str] | None = None) -> None:
    """Notify subscribers and the observer of the rows that one statement has committed. `rung` has a negative count for
    each subscriber that was woken with the commit."""
    soonest: dict[str, int] = {}
    for before, after, _ in written:
        if after.lane == Lane.DUE and change_check.falls_due(before, after):
            soonest[after.queue] = min(after.due_ms, soonest.get(after.queue, after.due_ms))
    woken: Counter[str] = Counter(rung)
    if soonest:
        now_ms = engine.clock.now_ms()
        try:
            queues = await engine.read_loosely(lambda db: sooner_than_others(db, soonest, now_ms))
        except StoreError as error:
            log.warning("waiting workers could not be notified of an earlier due time (%s); they will poll", error)
        else:
            woken.update(f"queue:{queue}" for queue in queues)
    engine.committed(written, woken)
