"""Retention: trimming by policy and deleting by an operator, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...lifecycle import Chain, tombstone
from ...model import first_id_at
from .. import change_check
from ..bounds import LONG, TICKS_KEPT_MS
from ..port import Deletion, Trimmed, TrimPolicy
from . import waits
from .engine import SqliteTx
from .rows import INSERT_EVENT, event_values, job_by_id
from .selection import free_slots
from .sql import all_rows, first_row, value

#: how long counts for the rates are kept; they cover only minutes
_FLOW_MINUTES = 60


def trim(tx: SqliteTx, policy: TrimPolicy) -> Trimmed:
    """Remove one batch of the rows that the policy names."""
    ids = _outlived(tx, policy)
    _remove(tx, ids)
    events, trimmed = _trim_events(tx, policy)
    tx.db.execute(
        "DELETE FROM keys WHERE rowid IN (SELECT rowid FROM keys WHERE until_ms <= ? LIMIT ?)",
        (tx.now_ms, policy.batch),
    )
    keys = tx.db.changes()
    tx.db.execute("DELETE FROM flow WHERE minute < ?", (tx.now_ms // 60_000 - _FLOW_MINUTES,))
    # ticks before the last one are judged by it
    tx.db.execute(
        "DELETE FROM ticks WHERE at_ms < (SELECT last_tick_ms - ? FROM schedules WHERE name = ticks.schedule)",
        (TICKS_KEPT_MS,),
    )
    more = policy.batch in (len(ids), trimmed, keys)
    return Trimmed(len(ids), events, keys, more)


def delete(
    tx: SqliteTx, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None, chain: Chain
) -> list[Deletion]:
    answers: list[Deletion] = []
    for job_id in ids:
        job = job_by_id(tx.db, job_id)
        if job is None:
            answers.append("missing")
            continue
        answer = change_check.deletion(job, job.session is not None or _unit_held(tx, job_id), versions)
        if answer == "deleted":
            keys = _unit_keys(tx, job_id)
            gone = _remove(tx, [job_id])
            event = tombstone(job, now_ms=tx.now_ms, actor=actor, reason=reason, chain=chain)
            tx.db.execute(INSERT_EVENT, event_values(event))
            if key := change_check.freed(job, None):
                keys.add(key)
            for key in keys:
                free_slots(tx, key)
            if waits.any_open(tx):
                waits.follow(tx, [(each, change_check.GONE) for each in gone], chain)
        answers.append(answer)
    return answers


def _unit_keys(tx: SqliteTx, job_id: str) -> set[str]:
    """The concurrency keys of the units of a job, whose slots they may hold."""
    sql = "SELECT DISTINCT concurrency_key FROM jobs WHERE parent = ? AND concurrency_key IS NOT NULL"
    return {row[0] for row in all_rows(tx.db, sql, (job_id,))}


def _outlived(tx: SqliteTx, policy: TrimPolicy) -> list[str]:
    """Ids of settled jobs to remove, at most one batch. A job settles after its creation, so the jobs of a status are
    walked by id, up to the first id that was made after the limit."""
    found: dict[str, None] = {}

    def room() -> int:
        return policy.batch - len(found)

    closed = "AND NOT EXISTS (SELECT 1 FROM jobs AS u WHERE u.parent = jobs.id AND u.settled_ms IS NULL)"
    for status, before_ms in policy.settled_before_ms.items():
        rows = all_rows(
            tx.db,
            "SELECT id FROM jobs WHERE parent IS NULL AND session IS NULL AND status = ? AND id < ? AND settled_ms < ? "
            f"AND expires_ms IS NULL {closed} ORDER BY id LIMIT ?",
            (status, first_id_at(before_ms), before_ms, room()),
        )
        found.update((row[0], None) for row in rows)
    rows = all_rows(
        tx.db,
        "SELECT id FROM jobs WHERE settled_ms IS NOT NULL AND expires_ms IS NOT NULL AND expires_ms <= ? "
        f"AND parent IS NULL {closed} ORDER BY expires_ms LIMIT ?",
        (tx.now_ms, room()),
    )
    found.update((row[0], None) for row in rows)
    for status, most in policy.keep_count.items():
        count = value(tx.db, "SELECT sum(n) FROM tallies WHERE status = ?", (status,)) or 0
        gone = sum(1 for job_id in found if _has_status(tx, job_id, status))
        excess = min(room(), count - gone - most)
        if excess > 0:
            rows = all_rows(
                tx.db,
                "SELECT id FROM jobs WHERE parent IS NULL AND session IS NULL AND status = ? "
                f"AND settled_ms IS NOT NULL AND expires_ms IS NULL {closed} ORDER BY id LIMIT ?",
                (status, excess + gone),
            )
            fresh = [row[0] for row in rows if row[0] not in found]
            found.update((job_id, None) for job_id in fresh[:excess])
    return list(found)


def _has_status(tx: SqliteTx, job_id: str, status: str) -> bool:
    return first_row(tx.db, "SELECT 1 FROM jobs WHERE id = ? AND status = ?", (job_id, status)) is not None


def _remove(tx: SqliteTx, ids: Iterable[str]) -> list[str]:
    """Delete jobs with their units, events, tags, refusals and waits, but not their keys. Returns the ids of all
    deleted rows."""
    gone: list[str] = []
    for job_id in ids:
        row = first_row(tx.db, "SELECT queue, status FROM jobs WHERE id = ? AND parent IS NULL", (job_id,))
        if row is not None:
            tx.count(row[0], row[1], None)
        units = [unit[0] for unit in all_rows(tx.db, "SELECT id FROM jobs WHERE parent = ?", (job_id,))]
        for one in (*units, job_id):
            tx.db.execute("DELETE FROM jobs WHERE id = ?", (one,))
            tx.db.execute("DELETE FROM events WHERE job_id = ?", (one,))
            tx.db.execute("DELETE FROM refusals WHERE job_id = ?", (one,))
            tx.db.execute("DELETE FROM tags WHERE job_id = ?", (one,))
            waits.forget(tx, one)
            gone.append(one)
    return gone


def _trim_events(tx: SqliteTx, policy: TrimPolicy) -> tuple[int, int]:
    """Trim long histories; returns the number of events and of jobs."""
    if policy.keep_events is None:
        return 0, 0
    keep = policy.keep_events
    indexed = f"version - trimmed_seq > {LONG} AND" if keep >= LONG else ""
    long = all_rows(
        tx.db,
        # the join skips jobs whose event is missing: the check reports such a broken history
        f"SELECT jobs.rowid, id, version - ?1, digest FROM jobs JOIN events ON job_id = id AND seq = version - ?1 "
        f"WHERE {indexed} version - trimmed_seq > ?1 LIMIT ?2",
        (keep, policy.batch),
    )
    removed = 0
    for rowid, job_id, through, digest in long:
        tx.db.execute("DELETE FROM events WHERE job_id = ? AND seq <= ?", (job_id, through))
        removed += tx.db.changes()
        tx.db.execute("UPDATE jobs SET trimmed_seq = ?, trimmed_digest = ? WHERE rowid = ?", (through, digest, rowid))
    return removed, len(long)


def _unit_held(tx: SqliteTx, job_id: str) -> bool:
    sql = "SELECT 1 FROM jobs WHERE parent = ? AND session IS NOT NULL LIMIT 1"
    return first_row(tx.db, sql, (job_id,)) is not None
