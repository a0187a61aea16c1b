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
from ..port import ChangeResult, ClaimReport, InsertResult, Key, NewJob, SealedChange, Written
from ..row_codec import json_text
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
        if (new.key is not None or job.unique_key is not None) and (held := keys.holder(index, new)) is not None:
            if new.must_be_new:
                raise change_check.already_there(index, held[0])
            answers.append(InsertResult(held[0], False, held[1]))
            stands[job.id] = held[0]
            continue
        if job.parent is not None and job.parent not in parents:
            if not _exists(tx, job.parent, fresh):
                raise change_check.no_parent(index, job.parent)
            parents.add(job.parent)
        if new.after:
            awaits[job.id] = waits.admit(tx, index, new, stands)
        stands[job.id] = job.id
        fresh.append(new)
        answers.append(InsertResult(job.id, True))
    _insert_rows(tx, fresh)
    if awaits:
        waits.enter(tx, awaits, stands, chain)
    return answers


def apply_changes(tx: SqliteTx, changes: Sequence[SealedChange], chain: Chain) -> list[ChangeResult]:
    """Judge and write each change on its own. Plain moves of different rows, the common case, are written together."""
    if _go_together(changes):
        answers = _apply_together(tx, changes, chain)
        if answers is not None:
            return answers
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


def _exists(tx: SqliteTx, parent: str, batch: Sequence[NewJob]) -> bool:
    if any(new.job.id == parent for new in batch):
        return True
    return first_row(tx.db, "SELECT 1 FROM jobs WHERE id = ?", (parent,)) is not None


def _insert_rows(tx: SqliteTx, jobs: Sequence[NewJob]) -> None:
    rows: list[Values] = []
    events: list[Values] = []
    written: list[Written] = []
    for new in jobs:
        rows.append(job_values(new.job))
        events += map(event_values, new.events)
        written.append((None, new.job, new.events))
    before = tx.db.total_changes()
    try:
        tx.db.executemany(INSERT_JOB, rows)
        tx.db.executemany(INSERT_EVENT, events)
    except apsw.ConstraintError as error:
        index = _clashing(jobs, tx.db.total_changes() - before)
        raise change_check.id_conflict(index, jobs[index].job.id) from error
    tx.wrote(written)
    for new in jobs:
        job, key = new.job, new.key
        if key is not None:
            tx.db.execute(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?)",
                (key.scope, key.name, key.content, job.id, key.until_ms),
            )
        for tag in job.options.tags:
            tx.db.execute("INSERT OR IGNORE INTO tags VALUES (?, ?)", (tag, job.id))


def _clashing(jobs: Sequence[NewJob], written: int) -> int:
    """The index of the job that clashed, from the number of rows and events that were written before it."""
    if written < len(jobs):
        return written
    owners = [index for index, new in enumerate(jobs) for _ in new.events]
    return owners[written - len(jobs)]


# -- changing ---------------------------------------------------------------------------------


def _go_together(changes: Sequence[SealedChange]) -> bool:
    """Whether these are moves of different rows that insert no jobs, by callers that saw themselves as the holder."""
    ids = set()
    for change in changes:
        if change.spawn or change.kind == "note" or not _claims_to_fit(change):
            return False
        ids.add(change.after.id)
    return len(ids) == len(changes)


def _apply_together(tx: SqliteTx, changes: Sequence[SealedChange], chain: Chain) -> list[ChangeResult] | None:
    """Write all at once; None, with nothing written, if one of them does not fit."""
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
    new holder, or its spawned jobs clash."""
    row = job_by_id(tx.db, change.after.id)
    if row is not None:
        change = msgspec.structs.replace(change, after=change_check.landed(row, change))
    try:
        with savepoint(tx.db):
            if not (_claims_to_fit(change) and _update(tx, [change])):
                return _refused(tx, row, change)
            tx.db.executemany(INSERT_EVENT, [event_values(event) for event in change.events])
            insert(tx, change.spawn, chain)
    except (apsw.ConstraintError, Conflict, InvalidInput):
        return ChangeResult("conflict", row)
    last = _follow_up(tx, [change], chain)
    return ChangeResult("applied", change.after, bool(last))


class _DoesNotFit(Exception):
    """Raised to undo a savepoint."""


def _claims_to_fit(change: SealedChange) -> bool:
    """Whether the caller saw itself as the holder. Every claim raises the version, so a matching version then proves
    the claim."""
    return bool(change.events) and (change.holder is None or change.before.session == change.holder)


def _update(tx: SqliteTx, changes: Sequence[SealedChange]) -> bool:
    """True if every row still had the version that its caller saw."""
    before = tx.db.total_changes()
    tx.db.executemany(UPDATE_JOB, [change_values(change) for change in changes])
    return tx.db.total_changes() - before == len(changes)


def _refused(tx: SqliteTx, row: Job | None, change: SealedChange) -> ChangeResult:
    """The result of a change that did not fit."""
    since = events_of(tx.db, change.after.id, after=change.before.version, limit=change_check.SINCE)
    outcome = change_check.judge(row, change, since)
    if outcome == "stale":
        refusal = change_check.refusal(change, tx.now_ms)
        tx.db.execute(
            "INSERT OR IGNORE INTO refusals VALUES (?, ?, ?, ?, ?)",
            (refusal.job_id, refusal.token, refusal.session, refusal.wanted, refusal.at_ms),
        )
    return ChangeResult(outcome, row)


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
