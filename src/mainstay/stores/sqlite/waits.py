"""Who waits for whom, inside a transaction.

An edge is open until the job it points to settles or goes. Whoever writes a row that is settled calls `follow` in the
same transaction, so the last of several jobs is never missed and never counted twice: SQLite has one writer at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import apsw

from ...lifecycle import Chain, Moved
from ...model import AWAITS_MS, Job
from .. import change_check
from ..port import Change, NewJob, Violation
from .damaged_text import read_rows
from .engine import SqliteTx
from .rows import INSERT_EVENT, UPDATE_JOB, change_values, event_values, readable_job
from .sql import all_rows, first_row, value

#: (job, status it settled in)
Over = tuple[str, str]


def admit(tx: SqliteTx, index: int, new: NewJob, stands: Mapping[str, str]) -> tuple[str, ...]:
    """The jobs that a new one waits for; refuses one that is not stored. `stands` has, for each earlier job of the
    batch, the one that stands for it: itself, or one that was stored before."""
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
    # rows of this very batch are unsettled, unless what they wait for settles them: `follow` sees to that
    fresh = {job_id for job_id, other in stands.items() if job_id == other}
    over = []
    for on in dict.fromkeys(on for _, _, on in edges if on not in fresh):
        # as bytes, because a flipped bit there must not keep others from being stored
        row = first_row(tx.db, "SELECT CAST(status AS BLOB), settled_ms FROM jobs WHERE id = ?", (on,))
        if row is None or row[1] is not None:
            over.append((on, change_check.GONE if row is None else row[0].decode(errors="replace")))
    follow(tx, over, chain)


def any_open(tx: SqliteTx) -> bool:
    """Whether anybody waits for anything: asked once per transaction, so that those without pay one look."""
    if tx.has_waits is None:
        tx.has_waits = first_row(tx.db, "SELECT 1 FROM waits WHERE done = 0 LIMIT 1") is not None
    return tx.has_waits


def settle(tx: SqliteTx, rows: Iterable[Job], chain: Chain) -> None:
    """Move on whoever waited for these rows, as far as they are settled."""
    if any_open(tx):
        follow(tx, [(row.id, row.status) for row in rows if change_check.is_settled(row)], chain)


def follow(tx: SqliteTx, over: Iterable[Over], chain: Chain) -> None:
    """Move on whoever waited for what settled or went, and whoever waited for those."""
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
    """A job goes: it waits for nothing any more. What waits for it is `follow`'s business."""
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
    found = []
    sql = "SELECT job_id, count(*) FROM waits WHERE job_id NOT IN (SELECT id FROM jobs) GROUP BY job_id"
    for job_id, n in all_rows(tx.db, sql):
        if repair:
            forget(tx, job_id)
        message = f"it waits for {n} jobs, and there is no such job"
        done = "its waits were removed" if repair else None
        found.append(Violation(code="stray_wait", job_id=job_id, message=message, repaired=done))
    return found


def _missed_ends(tx: SqliteTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Somebody waits for a job that has settled or is gone."""
    rows = all_rows(
        tx.db,
        "SELECT on_id, count(*), status FROM waits LEFT JOIN jobs ON jobs.id = on_id "
        "WHERE done = 0 AND (jobs.id IS NULL OR settled_ms IS NOT NULL) GROUP BY on_id",
    )
    found = []
    for on, n, status in rows:
        if repair:
            follow(tx, [(on, change_check.GONE if status is None else status)], chain)
        said = "was deleted" if status is None else f"is {status}"
        done = "they moved on" if repair else None
        found.append(
            Violation(code="wait_missed", job_id=on, message=f"{n} jobs wait for it, and it {said}", repaired=done)
        )
    return found


def _stranded(tx: SqliteTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """A row that waits for other jobs though none is left to wait for."""
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
            continue  # what is wrong with the row itself is found and mended elsewhere
        done = _unstrand(tx, row, chain) if repair else None
        message = "it waits for other jobs, and there is none left to wait for"
        found.append(Violation(code="wait_stranded", job_id=job_id, message=message, repaired=done))
    return found


def _unstrand(tx: SqliteTx, row: Job, chain: Chain) -> str | None:
    there = all_rows(
        tx.db,
        "SELECT on_id, status FROM waits JOIN jobs ON jobs.id = on_id "
        "WHERE job_id = ? AND settled_ms IS NOT NULL ORDER BY place",
        (row.id,),
    )
    moved = change_check.stranded_move(row, [(on, status) for on, status in there], now_ms=tx.now_ms, chain=chain)
    if moved is None:
        return None
    _write(tx, row, moved)
    settle(tx, [moved.job], chain)
    return f"it is {moved.job.status} now"


# -- rows ---------------------------------------------------------------------------------------


def _waits_for_more(tx: SqliteTx, job_id: str) -> bool:
    return bool(value(tx.db, "SELECT EXISTS (SELECT 1 FROM waits WHERE job_id = ? AND done = 0)", (job_id,)))


def _whole(tx: SqliteTx, job_id: str) -> Job | None:
    """A row that can be read in full: of a damaged one nobody knows what it was told to do."""
    rows, broken = read_rows(tx.db, "jobs", "FROM jobs WHERE id = ?", (job_id,))
    if not rows or broken:
        return None
    job, damaged = readable_job(rows[0])
    return None if damaged else job


def _write(tx: SqliteTx, row: Job, moved: Moved) -> None:
    change = Change.of(row, moved)
    tx.db.execute(UPDATE_JOB, change_values(change))
    tx.db.executemany(INSERT_EVENT, [event_values(event) for event in moved.events])
    tx.wrote([(row, moved.job, moved.events)])
