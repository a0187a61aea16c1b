"""Inserts, changes and reports, inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import apsw
import msgspec

from ...errors import Conflict, InvalidInput
from ...lifecycle import Chain
from ...model import Job
from .. import change_check
from ..boot import boot_id
from ..port import ChangeResult, ClaimReport, InsertResult, Key, NewJob, Outcome, SealedChange, Written
from ..row_codec import json_text
from ..sealed_changes import FINE, withheld
from . import waits
from .engine import SqliteTx
from .rows import (
    INSERT_EVENT,
    INSERT_JOB,
    UPDATE_JOB,
    Values,
    change_values,
    event_values,
    events_of,
    job_by_id,
    job_values,
)
from .selection import free_slots
from .sql import first_row, savepoint


def insert(tx: SqliteTx, jobs: Sequence[NewJob], chain: Chain) -> list[InsertResult]:
    """Insert all or nothing; the engine undoes it all if this raises."""
    answers: list[InsertResult] = []
    fresh: list[NewJob] = []
    keys = change_check.BatchKeys(partial(_stored_key, tx), partial(_stored_unique, tx))
    parents: set[str] = set()
    stands: dict[str, str] = {}
    awaits: dict[str, tuple[str, ...]] = {}
    for index, new in enumerate(jobs):
        job = new.job
        held = None
        try:
            if new.key is not None or job.unique_key is not None:
                held = keys.holder(index, new)
                if held is not None and new.must_be_new:
                    raise change_check.already_there(index, held[0])
            if held is None and job.parent is not None and job.parent not in parents:
                _admit_parent(tx, index, job.parent, fresh)
                parents.add(job.parent)
            if held is None and new.after:
                awaits[job.id] = waits.admit(tx, index, new, stands)
        except (Conflict, InvalidInput):
            if not _was_inserted(tx, new):
                raise
            answers.append(InsertResult(job.id, True))
            continue
        if held is not None and not _was_inserted(tx, new):
            answers.append(InsertResult(held[0], False, held[1]))
            stands[job.id] = held[0]
            continue
        answers.append(InsertResult(job.id, True))
        if held is None:
            stands[job.id] = job.id
            fresh.append(new)
    for again in _insert_rows(tx, fresh):
        stands.pop(again, None)
        awaits.pop(again, None)
    if awaits:
        waits.enter(tx, awaits, stands, chain)
    return answers


def apply_changes(
    tx: SqliteTx, changes: Sequence[SealedChange], chain: Chain, *, together: bool = False
) -> list[ChangeResult]:
    """Judge and write each change on its own; or `together`, all or none. Plain moves of different rows, the common
    case, are written at once: if they all fit, both are the same."""
    # one of the others may free the key: whether both fit would depend on their order
    if _are_plain(changes) and not (together and any(map(change_check.taken_again, changes))):
        answers = _apply_at_once(tx, changes, chain)
        if answers is not None:
            return answers
    if together:
        return _apply_together(tx, changes, chain)
    return [_apply_alone(tx, change, chain) for change in changes]


def report(tx: SqliteTx, reports: Sequence[ClaimReport]) -> list[bool]:
    """Record reports; False if the claim is no longer held."""
    return [_report_one(tx, item) for item in reports]


# -- inserting --------------------------------------------------------------------------------


def _stored_key(tx: SqliteTx, key: Key) -> tuple[bytes, str] | None:
    sql = "SELECT content, job_id FROM keys WHERE scope = ? AND name = ? AND until_ms > ?"
    row = first_row(tx.db, sql, (key.scope, key.name, tx.now_ms))
    return None if row is None else (row[0], row[1])


def _stored_unique(tx: SqliteTx, unique_key: str) -> str | None:
    row = first_row(tx.db, "SELECT id FROM jobs WHERE unique_key = ? AND settled_ms IS NULL", (unique_key,))
    return None if row is None else row[0]


def _admit_parent(tx: SqliteTx, index: int, parent: str, batch: Sequence[NewJob]) -> None:
    """Refuse a unit whose parent is neither stored nor earlier in the batch."""
    if any(new.job.id == parent for new in batch):
        return
    if first_row(tx.db, "SELECT 1 FROM jobs WHERE id = ?", (parent,)) is None:
        raise change_check.no_parent(index, parent)


def _was_inserted(tx: SqliteTx, new: NewJob) -> bool:
    """Whether this very job is stored. Looked up only for jobs that would be refused, or that another one stands
    for."""
    row = job_by_id(tx.db, new.job.id)
    first = None if row is None else next(iter(events_of(tx.db, new.job.id, after=0, limit=1)), None)
    return row is not None and change_check.was_inserted(new, first, row)


def _insert_rows(tx: SqliteTx, jobs: Sequence[NewJob]) -> list[str]:
    """Store new rows. Returns the ids of those that were stored before, when the same call was sent the first time."""
    rows = [job_values(new.job) for new in jobs]
    again: list[str] = []
    start = 0
    while start < len(jobs):
        before = tx.db.total_changes()
        try:
            tx.db.executemany(INSERT_JOB, rows[start:] if start else rows)
            break
        except apsw.ConstraintError as error:
            index = start + tx.db.total_changes() - before
            new = jobs[index]
            if not _was_inserted(tx, new):
                raise change_check.id_conflict(index, new.job.id) from error
            again.append(new.job.id)
            start = index + 1
    if again:
        jobs = [new for new in jobs if new.job.id not in again]
    _insert_events(tx, jobs)
    for new in jobs:
        job, key = new.job, new.key
        if key is not None:
            tx.db.execute(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?)",
                (key.scope, key.name, key.content, job.id, key.until_ms),
            )
        for tag in job.options.tags:
            tx.db.execute("INSERT OR IGNORE INTO tags VALUES (?, ?)", (tag, job.id))
    return again


def _insert_events(tx: SqliteTx, jobs: Sequence[NewJob]) -> None:
    events: list[Values] = []
    written: list[Written] = []
    for new in jobs:
        events += map(event_values, new.events)
        written.append((None, new.job, new.events))
    before = tx.db.total_changes()
    try:
        tx.db.executemany(INSERT_EVENT, events)
    except apsw.ConstraintError as error:
        owners = [index for index, new in enumerate(jobs) for _ in new.events]
        index = owners[tx.db.total_changes() - before]
        raise change_check.id_conflict(index, jobs[index].job.id) from error
    tx.wrote(written)


# -- changing ---------------------------------------------------------------------------------


def _are_plain(changes: Sequence[SealedChange]) -> bool:
    """Whether these are moves of different rows that insert no jobs, by callers that saw themselves as the holder."""
    ids = set()
    for change in changes:
        if change.spawn or change.kind == "note" or not _claims_to_fit(change):
            return False
        ids.add(change.after.id)
    return len(ids) == len(changes)


def _apply_at_once(tx: SqliteTx, changes: Sequence[SealedChange], chain: Chain) -> list[ChangeResult] | None:
    """Write all by few statements; None, with nothing written, if one of them does not fit."""
    # most changes give their row to no session
    if any(change.after.session is not None and not _gives_to_open(tx, change) for change in changes):
        return None
    try:
        with savepoint(tx.db):
            if not _update(tx, changes):
                raise _DoesNotFit
            tx.db.executemany(INSERT_EVENT, [event_values(event) for change in changes for event in change.events])
    except (_DoesNotFit, apsw.ConstraintError):
        return None
    last = _follow_up(tx, changes, chain)
    return [ChangeResult("applied", change.after, change.after.id in last) for change in changes]


def _apply_alone(tx: SqliteTx, change: SealedChange, chain: Chain) -> ChangeResult:
    """Write one change that may not fit: it lost a race, it is a note based on an older report, its unique key has a
    new holder, its spawned jobs clash, or the session that it gives the row to is not open."""
    row = job_by_id(tx.db, change.after.id)
    change = _landed(row, change)
    try:
        with savepoint(tx.db):
            outcome = _write(tx, row, change)
            if outcome != "applied":
                raise _DoesNotFit(outcome)
            insert(tx, change.spawn, chain)
    except _DoesNotFit as refused:
        _record(tx, change, refused.outcome)
        return ChangeResult(refused.outcome, row)
    except (apsw.ConstraintError, Conflict, InvalidInput):
        return ChangeResult("conflict", row)
    last = _follow_up(tx, [change], chain)
    return ChangeResult("applied", change.after, bool(last))


def _apply_together(tx: SqliteTx, changes: Sequence[SealedChange], chain: Chain) -> list[ChangeResult]:
    """Write all of the changes, or none. The rows come before the spawned jobs, for which they may free a unique key,
    and both before what follows from them, which would move the rows of later changes."""
    rows = [job_by_id(tx.db, change.after.id) for change in changes]
    changes = [_landed(row, change) for row, change in zip(rows, changes, strict=True)]
    outcomes: list[Outcome] = []
    held = _held_uniques(tx, changes)
    part = tx.part()
    try:
        with savepoint(tx.db):
            outcomes = [_write(part, row, change) for row, change in zip(rows, changes, strict=True)]
            fitting = [change for change, outcome in zip(changes, outcomes, strict=True) if outcome == "applied"]
            clashing = change_check.retakes(fitting, held)
            outcomes = [
                "conflict" if change.after.id in clashing else outcome
                for change, outcome in zip(changes, outcomes, strict=True)
            ]
            if not all(outcome in FINE for outcome in outcomes):
                raise _DoesNotFit
            _spawn(part, changes, outcomes, chain)
    except _DoesNotFit:
        for change, outcome in zip(changes, outcomes, strict=True):
            _record(tx, change, outcome)
        return withheld([ChangeResult(outcome, row) for outcome, row in zip(outcomes, rows, strict=True)])
    tx.take(part)
    written = [change for change, outcome in zip(changes, outcomes, strict=True) if outcome == "applied"]
    last = _follow_up(tx, written, chain)
    return [
        ChangeResult("applied", change.after, change.after.id in last)
        if outcome == "applied"
        else ChangeResult(outcome, row)
        for change, outcome, row in zip(changes, outcomes, rows, strict=True)
    ]


def _held_uniques(tx: SqliteTx, changes: Sequence[SealedChange]) -> set[str]:
    """The unique keys that these changes would take again, but other jobs hold."""
    keys = {key for change in changes if (key := change_check.taken_again(change)) is not None}
    return {key for key in keys if _stored_unique(tx, key) is not None}


def _spawn(tx: SqliteTx, changes: Sequence[SealedChange], outcomes: list[Outcome], chain: Chain) -> None:
    """Insert the jobs of the applied changes. The first change whose jobs clash becomes a conflict."""
    for place, change in enumerate(changes):
        if not change.spawn or outcomes[place] != "applied":
            continue
        try:
            insert(tx, change.spawn, chain)
        except (apsw.ConstraintError, Conflict, InvalidInput) as error:
            outcomes[place] = "conflict"
            raise _DoesNotFit from error


class _DoesNotFit(Exception):
    """Raised to undo a savepoint."""

    def __init__(self, outcome: Outcome = "conflict") -> None:
        super().__init__(outcome)
        self.outcome = outcome


def _landed(row: Job | None, change: SealedChange) -> SealedChange:
    return change if row is None else msgspec.structs.replace(change, after=change_check.landed(row, change))


def _write(tx: SqliteTx, row: Job | None, change: SealedChange) -> Outcome:
    """Write one row and its events, if the change fits."""
    try:
        if not (_claims_to_fit(change) and _update(tx, [change])):
            return _judged(tx, row, change)
        tx.db.executemany(INSERT_EVENT, [event_values(event) for event in change.events])
    except apsw.ConstraintError:
        return "conflict"
    return "applied" if _gives_to_open(tx, change) else "no_session"


def _gives_to_open(tx: SqliteTx, change: SealedChange) -> bool:
    """Whether the session that a change gives its row to is open, if it gives it to one."""
    if (holder := change_check.new_holder(change)) is None:
        return True
    sql = "SELECT 1 FROM sessions WHERE id = ? AND dead = 0 AND (standing OR boot = ?)"
    return first_row(tx.db, sql, (holder, boot_id())) is not None


def _claims_to_fit(change: SealedChange) -> bool:
    """Whether the caller saw itself as the holder. Every claim raises the version, so a matching version then proves
    the claim."""
    return bool(change.events) and (change.holder is None or change.before.session == change.holder)


def _update(tx: SqliteTx, changes: Sequence[SealedChange]) -> bool:
    """True if every row still had the version that its caller saw."""
    before = tx.db.total_changes()
    tx.db.executemany(UPDATE_JOB, [change_values(change) for change in changes])
    return tx.db.total_changes() - before == len(changes)


def _judged(tx: SqliteTx, row: Job | None, change: SealedChange) -> Outcome:
    """The outcome of a change that did not fit."""
    since = events_of(tx.db, change.after.id, after=change.before.version, limit=change_check.SINCE)
    return change_check.judge(row, change, since)


def _record(tx: SqliteTx, change: SealedChange, outcome: Outcome) -> None:
    """Record the refusal of a stale change."""
    if outcome == "stale":
        refusal = change_check.refusal(change, tx.now_ms)
        tx.db.execute(
            "INSERT OR IGNORE INTO refusals VALUES (?, ?, ?, ?, ?)",
            (refusal.job_id, refusal.token, refusal.session, refusal.wanted, refusal.at_ms),
        )


def _follow_up(tx: SqliteTx, written: Sequence[SealedChange], chain: Chain) -> set[str]:
    """The consequences of applied changes: counts, wakes, freed slots, dependants, parents.

    Returns the ids of the units that were the last open ones of their parents."""
    tx.wrote([(change.before, change.after, change.events) for change in written])
    keys, last_units = change_check.affected(written)
    for key in keys:
        free_slots(tx, key)
    waits.settle(tx, [change.after for change in written], chain)
    return {change.after.id for parent, change in last_units.items() if _closes(tx, parent, change, chain)}


def _closes(tx: SqliteTx, parent_id: str, change: SealedChange, chain: Chain) -> bool:
    """True if the parent has no open unit left; then its `on_last` move is made here."""
    if first_row(tx.db, "SELECT 1 FROM jobs WHERE parent = ? AND settled_ms IS NULL LIMIT 1", (parent_id,)):
        return False
    parent = job_by_id(tx.db, parent_id)
    moved = change_check.parent_move(parent, change, tx.now_ms, chain)
    if parent is not None and moved is not None:
        apply_changes(tx, [SealedChange.of(parent, moved)], chain)
    return True


def _report_one(tx: SqliteTx, item: ClaimReport) -> bool:
    row = job_by_id(tx.db, item.job_id)
    after = change_check.reported(row, item, tx.now_ms)
    if after is None:
        return False
    _write_report(tx, after)
    return True


def _write_report(tx: SqliteTx, after: Job) -> None:
    values: tuple[Any, ...] = (
        after.started_ms,
        after.starts,
        json_text(after.progress),
        after.progress_ms,
        after.checkpoint,
        after.expires_ms,
        after.id,
    )
    tx.db.execute(
        "UPDATE jobs SET started_ms = ?, starts = ?, progress = ?, progress_ms = ?, checkpoint = ?, expires_ms = ? "
        "WHERE id = ?",
        values,
    )
