"""Jobs that wait for other jobs, inside a transaction.

An edge is open until the job it points to settles or is deleted. Code that writes a settled row calls `settle` in the
same transaction. SQLite has one writer at a time, so the last of several jobs is never missed and never counted twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import apsw

from ...lifecycle import Chain, Moved
from ...model import AWAITS_MS, Job
from .. import change_check
from ..port import NewJob, SealedChange, Violation
from ..violations import missed_end, stranded_wait, stray_wait
from .damaged_text import read_rows
from .engine import SqliteTx
from .rows import INSERT_EVENT, UPDATE_JOB, change_values, event_values, readable_job
from .sql import all_rows, first_row, value

#: (job, status it settled in)
Over = tuple[str, str]


def admit(tx: SqliteTx, index: int, new: NewJob, stands: Mapping[str, str]) -> tuple[str, ...]:
    """The jobs that a new one waits for. Refuses one that is not stored. `stands` maps each earlier job of the batch to
    the one that stands for it: itself, or one that was stored before."""
    found = []
    for place, on in enumerate(new.after):
        if on not in stands and first_row(tx.db, "SELECT 1 FROM jobs WHERE id = ?", (on,)) is None:
            raise change_check.no_dependency(index, place, on)
        found.append(stands.get(on, on))
    return tuple(dict.fromkeys(found))


def enter(tx: SqliteTx, awaits: Mapping[str, tuple[str, ...]], stands: Mapping[str, str], chain: Chain) -> None:
    """Store what new rows wait for, once they are stored themselves."""
    edges = [(job_id, place, on) for job_id, after in awaits.items() for place, on in enumerate(after)]
    tx.db.executemany("INSERT INTO waits VALUES (?, ?, ?, 0)", edges)
    tx.has_waits = True
    # rows of this batch are unsettled, unless the jobs they wait for settle them: `follow` does that
    fresh = {job_id for job_id, other in stands.items() if job_id == other}
    over = []
    for on in dict.fromkeys(on for _, _, on in edges if on not in fresh):
        # as bytes, because a flipped bit in it must not keep other jobs from being stored
        row = first_row(tx.db, "SELECT CAST(status AS BLOB), settled_ms FROM jobs WHERE id = ?", (on,))
        if row is None or row[1] is not None:
            over.append((on, change_check.GONE if row is None else row[0].decode(errors="replace")))
    follow(tx, over, chain)


def any_open(tx: SqliteTx) -> bool:
    """Whether any job waits for another. Looked up once per transaction, so that a store without waits pays one
    look."""
    if tx.has_waits is None:
        tx.has_waits = first_row(tx.db, "SELECT 1 FROM waits WHERE done = 0 LIMIT 1") is not None
    return tx.has_waits


def settle(tx: SqliteTx, rows: Iterable[Job], chain: Chain) -> None:
    """Move the jobs on that waited for those of these rows that are settled."""
    if any_open(tx):
        follow(tx, [(row.id, row.status) for row in rows if change_check.is_settled(row)], chain)


def follow(tx: SqliteTx, over: Iterable[Over], chain: Chain) -> None:
    """Move the jobs on that waited for jobs that settled or were deleted, and in turn those that waited for them."""
    queue = deque(over)
    while queue:
        on, status = queue.popleft()
        waiters = all_rows(tx.db, "SELECT job_id FROM waits WHERE on_id = ? AND done = 0 ORDER BY job_id", (on,))
        if not waiters:
            continue
        tx.db.execute("UPDATE waits SET done = 1 WHERE on_id = ? AND done = 0", (on,))
        for (job_id,) in waiters:
            more = _waits_for_more(tx, job_id)
            if change_check.keeps_waiting(status, more=more):
                continue
            row = _whole(tx, job_id)
            moved = change_check.dependant_move(row, on, status, more=more, now_ms=tx.now_ms, chain=chain)
            if row is not None and moved is not None:
                _write(tx, row, moved)
                if change_check.is_settled(moved.job):
                    queue.append((moved.job.id, moved.job.status))


def forget(tx: SqliteTx, job_id: str) -> None:
    """Remove the edges of a deleted job. `follow` moves the jobs on that wait for it."""
    tx.db.execute("DELETE FROM waits WHERE job_id = ?", (job_id,))


def awaited(db: apsw.Connection, job_id: str) -> list[str]:
    return [row[0] for row in all_rows(db, "SELECT on_id FROM waits WHERE job_id = ? ORDER BY place", (job_id,))]


# -- the check ----------------------------------------------------------------------------------


def check(tx: SqliteTx, chain: Chain, *, repair: bool) -> list[Violation]:
    return [
        *_stray(tx, repair=repair),
        *_missed_ends(tx, chain, repair=repair),
        *_stranded(tx, chain, repair=repair),
    ]


def _stray(tx: SqliteTx, *, repair: bool) -> list[Violation]:
    sql = "SELECT job_id, count(*) FROM waits WHERE job_id NOT IN (SELECT id FROM jobs) GROUP BY job_id"
    rows = all_rows(tx.db, sql)
    if repair:
        for job_id, _ in rows:
            forget(tx, job_id)
    return [stray_wait(job_id, n, repaired=repair) for job_id, n in rows]


def _missed_ends(tx: SqliteTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Open edges to jobs that have settled or are deleted."""
    rows = all_rows(
        tx.db,
        "SELECT on_id, count(*), status FROM waits LEFT JOIN jobs ON jobs.id = on_id "
        "WHERE done = 0 AND (jobs.id IS NULL OR settled_ms IS NOT NULL) GROUP BY on_id",
    )
    if repair:
        for on, _, status in rows:
            follow(tx, [(on, change_check.GONE if status is None else status)], chain)
    return [missed_end(on, n, status, repaired=repair) for on, n, status in rows]


def _stranded(tx: SqliteTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Rows that wait for other jobs and have no open edge."""
    ids = all_rows(
        tx.db,
        "SELECT id FROM jobs WHERE lane = 2 AND due_ms = ? AND settled_ms IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM waits WHERE job_id = jobs.id AND done = 0)",
        (AWAITS_MS,),
    )
    found = []
    for (job_id,) in ids:
        row = _whole(tx, job_id)
        if row is None or not change_check.is_waiting(row):
            continue  # damage of the row itself is found and repaired elsewhere
        found.append(stranded_wait(job_id, _unstrand(tx, row, chain) if repair else None))
    return found


def _unstrand(tx: SqliteTx, row: Job, chain: Chain) -> str | None:
    """Move it on; returns its new status."""
    awaited = all_rows(
        tx.db,
        "SELECT on_id, status FROM waits JOIN jobs ON jobs.id = on_id "
        "WHERE job_id = ? AND settled_ms IS NOT NULL ORDER BY place",
        (row.id,),
    )
    moved = change_check.stranded_move(row, [(on, status) for on, status in awaited], now_ms=tx.now_ms, chain=chain)
    if moved is None:
        return None
    _write(tx, row, moved)
    settle(tx, [moved.job], chain)
    return moved.job.status


# -- rows ---------------------------------------------------------------------------------------


def _waits_for_more(tx: SqliteTx, job_id: str) -> bool:
    return bool(value(tx.db, "SELECT EXISTS (SELECT 1 FROM waits WHERE job_id = ? AND done = 0)", (job_id,)))


def _whole(tx: SqliteTx, job_id: str) -> Job | None:
    """A row that can be read in full. A damaged one may hide what its job has to wait for."""
    rows, broken = read_rows(tx.db, "jobs", "FROM jobs WHERE id = ?", (job_id,))
    if not rows or broken:
        return None
    job, damaged = readable_job(rows[0])
    return None if damaged else job


def _write(tx: SqliteTx, row: Job, moved: Moved) -> None:
    change = SealedChange.of(row, moved)
    tx.db.execute(UPDATE_JOB, change_values(change))
    tx.db.executemany(INSERT_EVENT, [event_values(event) for event in moved.events])
    tx.wrote([(row, moved.job, moved.events)])
