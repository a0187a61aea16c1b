"""What the check needs from SQLite: the rows as they are, and what only the engine can see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import msgspec

from ...errors import StoreDamaged
from ...lifecycle import JOB, UNIT, Chain, Event, Move, apply
from ...model import Job
from ..boot import boot_id
from ..bounds import LONGEST_LEAD_MS
from ..port import Audited, Violation
from ..violations import bad_lead, stray_refusal
from . import waits
from .damaged_text import read_rows
from .engine import SqliteTx
from .errors import damage_text
from .rows import (
    INSERT_EVENT,
    JOB_COLUMNS,
    JOB_FIELDS,
    SELECT_EVENT,
    event_values,
    job_values,
    readable_job,
)
from .schema import VERSION, columns_of, expected_columns, expected_objects, tables_of, version_of
from .selection import free_slots
from .sql import all_rows, first_row, savepoint, value

#: at open, files up to this size are read through once
QUICK_CHECK_BYTES = 16 * 1024 * 1024

_ALL_EVENTS = 1 << 40

#: what other tables call their rows by
_NAMES = (
    ("events", "job_id"),
    ("tallies", "queue"),
    ("tallies", "status"),
    ("keys", "scope"),
    ("keys", "name"),
    ("waits", "job_id"),
    ("waits", "on_id"),
)


def audit(db: apsw.Connection, after: str, limit: int) -> list[Audited]:
    tail = "FROM jobs WHERE id > ? ORDER BY id LIMIT ?"
    rows, broken = read_rows(db, "jobs", tail, (after, limit), more=", rowid, CAST(id AS BLOB)")
    found = []
    for at, row in enumerate(rows):
        job, damaged = readable_job(row)
        # by the id as stored, which may be the text that cannot be read
        events_tail = "FROM events WHERE job_id = CAST(? AS TEXT) AND seq > ? ORDER BY seq"
        events, _ = read_rows(db, "events", events_tail, (row[-1], job.trimmed_seq))
        wrong = {**broken.get(at, {}), **damaged}
        found.append(Audited(job=job, events=[Event(*event) for event in events], damaged=wrong, key=row[-2]))
    return found


def mend(tx: SqliteTx, found: Audited, after: Job, events: Sequence[Event], chain: Chain) -> bool:
    # as bytes, because either may be the text that cannot be read
    sql = "SELECT version, CAST(status AS BLOB), CAST(queue AS BLOB) FROM jobs WHERE rowid = ?"
    row = first_row(tx.db, sql, (found.key,))
    if row is None or row[0] != found.job.version:
        return False
    columns = ", ".join(f'"{name}" = ?' for name in JOB_FIELDS)
    try:
        with savepoint(tx.db):
            tx.db.execute(f"UPDATE jobs SET {columns} WHERE rowid = ?", (*job_values(after), found.key))
            tx.db.executemany(INSERT_EVENT, [event_values(event) for event in events])
    except apsw.ConstraintError:
        return False
    if after.parent is None:
        tx.count(row[2].decode(errors="replace"), row[1].decode(errors="replace"), None)
        tx.count(after.queue, None, after.status)
    if after.concurrency_key is not None:
        free_slots(tx, after.concurrency_key)
    waits.settle(tx, [after], chain)
    return True


def check_file(db: apsw.Connection, path: Path, *, quick: bool) -> list[str]:
    """Raise `StoreDamaged` if the file is damaged; damage that is only in an index comes back in words."""
    pragma = "quick_check" if quick else "integrity_check"
    try:
        lines = [row[0] for row in all_rows(db, f"PRAGMA {pragma}(20)")]
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreDamaged(damage_text(path, str(error))) from error
    lines = [line for line in lines if line != "ok"]
    if any(not _in_index_only(line) for line in lines):
        raise StoreDamaged(damage_text(path, lines[0]))
    return lines


def _same_schema(db: apsw.Connection, path: Path) -> None:
    """Refuse a table that is not declared as we declare it: one flipped bit in a column's name, and every row would
    read as damaged, for "to" is then no column but a string."""
    try:
        stored: dict[str, str] = dict(all_rows(db, "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    except UnicodeDecodeError as error:
        raise StoreDamaged(damage_text(path, f"its schema is not text: {error}")) from error
    if (version := version_of(db)) > VERSION:
        _newer_schema(db, path)
        return
    declared = expected_objects(version)
    for name, sql in declared.items():
        if sql.startswith("CREATE TABLE") and stored.get(name) != sql:
            what = "was changed" if name in stored else "is missing"
            raise StoreDamaged(damage_text(path, f"the declaration of the table {name} {what}"))


def _newer_schema(db: apsw.Connection, path: Path) -> None:
    """A newer version may have added to a table; what this version uses of it must be there."""
    there = {name: columns_of(db, name) for name in tables_of(db)}
    for table, columns in expected_columns().items():
        if lost := sorted(columns.keys() - there.get(table, {}).keys()):
            raise StoreDamaged(damage_text(path, f"the table {table} lacks {', '.join(lost)}"))


def fast_findings(db: apsw.Connection) -> list[str]:
    """A glance at open: what the indexes alone can show."""
    findings = []
    known = {*JOB.states, *UNIT.states}
    for status, n in all_rows(db, "SELECT status, sum(n) FROM tallies GROUP BY status HAVING sum(n) != 0"):
        if status not in known:
            findings.append(f"{n} jobs are {status!r}, a status this version does not know")
    aside = value(db, "SELECT count(*) FROM jobs WHERE lane = 4")
    if aside:
        findings.append(f"{aside} jobs could not be read and were set aside")
    settled = value(db, "SELECT count(*) FROM jobs WHERE session IS NOT NULL AND settled_ms IS NOT NULL")
    if settled:
        findings.append(f"{settled} settled jobs still hold a claim")
    strange = value(
        db, "SELECT count(*) FROM jobs WHERE session IS NOT NULL AND session NOT IN (SELECT id FROM sessions)"
    )
    if strange:
        findings.append(f"{strange} jobs are held by unknown sessions; the next sweep releases them")
    return findings


def check(tx: SqliteTx, path: Path, chain: Chain, *, repair: bool) -> list[Violation]:
    """All the engine can see, in an order in which repairs build on each other."""
    _same_schema(tx.db, path)
    found = [
        Violation(code="index_damaged", message=line, repaired="all indexes were rebuilt" if repair else None)
        for line in check_file(tx.db, path, quick=False)
    ]
    if found and repair:
        tx.db.execute("REINDEX")
    looks: tuple[Callable[[], list[Violation]], ...] = (
        lambda: _duplicate_ids(tx, chain, repair=repair),
        lambda: _duplicate_keys(tx, repair=repair),
        lambda: _schema(tx, repair=repair),
        lambda: _stray_events(tx, chain, repair=repair),
        lambda: _tallies(tx, repair=repair),
        lambda: _stranded_keys(tx, repair=repair),
        lambda: _leads(tx, repair=repair),
        lambda: _stray_refusals(tx, repair=repair),
        lambda: waits.check(tx, chain, repair=repair),
    )
    broken_text = None
    for look in looks:
        try:
            found += look()
        except UnicodeDecodeError as error:
            broken_text = f"some stored text is not UTF-8, so not all could be compared: {error}"
    if broken_text is not None:
        done = _spell_names(tx) if repair else None
        found.append(Violation(code="broken_text", message=broken_text, repaired=done))
    return found


def _spell_names(tx: SqliteTx) -> str | None:
    """Give readable names to what a flipped bit left without one; what it then turns out to be, the next look tells.
    The rows of jobs are mended one by one, with their events."""
    changed = 0
    for table, column in _NAMES:
        for (raw,) in all_rows(tx.db, f"SELECT DISTINCT CAST({column} AS BLOB) FROM {table}"):
            text = raw.decode(errors="replace")
            if text.encode() != raw:
                sql = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE CAST({column} AS BLOB) = ?"
                tx.db.execute(sql, (text, raw))
                changed += tx.db.changes()
    return f"{changed} names were spelled with replacement characters" if changed else None


def _in_index_only(line: str) -> bool:
    return "missing from index" in line or "wrong # of entries in index" in line or "non-unique entry in index" in line


def _duplicate_ids(tx: SqliteTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Two rows with one id: the one with the longest history is the job; the others get ids of their own and are
    quarantined, so that nothing is lost."""
    twice = all_rows(tx.db, "SELECT id FROM jobs NOT INDEXED GROUP BY id HAVING count(*) > 1")
    found = []
    for (job_id,) in twice:
        rows = all_rows(
            tx.db,
            f"SELECT rowid, {JOB_COLUMNS} FROM jobs NOT INDEXED WHERE id = ? ORDER BY version DESC, rowid",
            (job_id,),
        )
        done = None
        if repair:
            copies = [_set_copy_apart(tx, row[0], readable_job(row[1:])[0], chain) for row in rows[1:]]
            done = f"the row with the longest history was kept; the others are now {', '.join(copies)}, quarantined"
        found.append(
            Violation(code="duplicate_id", job_id=job_id, message=f"{len(rows)} rows have this id", repaired=done)
        )
    return found


def _set_copy_apart(tx: SqliteTx, rowid: int, job: Job, chain: Chain) -> str:
    digits = f"{rowid & 0xFFFFFFFFFFFF:012x}"
    fresh = f"{job.id[:24]}{digits}"
    copy = msgspec.structs.replace(job, id=fresh, trimmed_seq=job.version, trimmed_digest=job.head, unique_key=None)
    # the copy's own history is unknown: its chain begins here
    start = msgspec.structs.replace(copy, status="pending", settled_ms=None, session=None)
    why = f"a second row had the id {job.id}; it said {job.status}"
    moved = apply(
        start, Move(to="quarantined", reason=why, flag="repair"), now_ms=tx.now_ms, actor="check", chain=chain
    )
    columns = ", ".join(f'"{name}" = ?' for name in JOB_FIELDS)
    tx.db.execute(f"UPDATE jobs SET {columns} WHERE rowid = ?", (*job_values(moved.job), rowid))
    tx.db.executemany(INSERT_EVENT, [event_values(event) for event in moved.events])
    return fresh


def _duplicate_keys(tx: SqliteTx, *, repair: bool) -> list[Violation]:
    twice = all_rows(
        tx.db, "SELECT scope, name, count(*), min(rowid) FROM keys NOT INDEXED GROUP BY scope, name HAVING count(*) > 1"
    )
    found = []
    for scope, name, n, first in twice:
        done = None
        if repair:
            tx.db.execute("DELETE FROM keys WHERE scope = ? AND name = ? AND rowid != ?", (scope, name, first))
            done = "the first use of the key was kept"
        message = f"the idempotency key {name!r} of {scope} is stored {n} times"
        found.append(Violation(code="duplicate_key", message=message, repaired=done))
    return found


def _schema(tx: SqliteTx, *, repair: bool) -> list[Violation]:
    if (version := version_of(tx.db)) > VERSION:
        return []  # which indexes it needs, the newer version knows
    present = {row[0] for row in all_rows(tx.db, "SELECT name FROM sqlite_schema")}
    found = []
    for name, sql in expected_objects(version).items():
        if name in present:
            continue
        done = None
        if repair:
            tx.db.execute(sql)
            done = "it was made again"
        found.append(Violation(code="schema_incomplete", message=f"{name} is missing", repaired=done))
    return found


def _stray_events(tx: SqliteTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Events of a job that is not there and was not deleted: kept, and closed with a tombstone."""
    strays = all_rows(
        tx.db,
        "SELECT job_id, max(seq) FROM events WHERE job_id NOT IN (SELECT id FROM jobs) "
        "GROUP BY job_id HAVING sum(flag = 'tombstone') = 0",
    )
    found = []
    for job_id, seq in strays:
        done = None
        if repair:
            (row,) = all_rows(tx.db, f"{SELECT_EVENT} WHERE job_id = ? AND seq = ?", (job_id, seq))
            last = Event(*row)
            stone = _stone(last, tx.now_ms, chain)
            tx.db.execute(INSERT_EVENT, event_values(stone))
            done = "the events were kept and closed with a tombstone"
        message = f"there are {seq} events or fewer but no such job"
        found.append(Violation(code="stray_events", job_id=job_id, message=message, repaired=done))
    return found


def _stone(last: Event, now_ms: int, chain: Chain) -> Event:
    why = "the job's row was gone"
    body = (last.job_id, last.seq + 1, now_ms, last.to, last.to, "check", why, last.token, "tombstone", None)
    return Event(*body, chain.digest(last.digest, body))


def _tallies(tx: SqliteTx, *, repair: bool) -> list[Violation]:
    told: dict[tuple[str, str], int] = {}
    true: dict[tuple[str, str], int] = {}
    # one statement, so that both sides are of one moment, also beside writers
    sql = (
        "SELECT 1, queue, status, n FROM tallies WHERE n != 0 UNION ALL "
        "SELECT 0, queue, status, count(*) FROM jobs WHERE parent IS NULL GROUP BY queue, status"
    )
    for is_told, queue, status, n in all_rows(tx.db, sql):
        (told if is_told else true)[queue, status] = n
    # this transaction's own moves are flushed at its end: what is stored is compared without them
    for key, n in tx.tallies.items():
        told[key] = told.get(key, 0) + n
    found = []
    for queue, status in sorted({*told, *true}):
        was, is_now = told.get((queue, status), 0), true.get((queue, status), 0)
        if was == is_now:
            continue
        if repair:
            tx.tallies[queue, status] += is_now - was
        message = f"queue {queue!r} counts {was} {status} jobs but has {is_now}"
        found.append(Violation(code="tally_wrong", message=message, repaired="recounted" if repair else None))
    return found


def _leads(tx: SqliteTx, *, repair: bool) -> list[Violation]:
    sql = "SELECT name, holder, until_ms FROM leaders WHERE boot = ? AND until_ms > ?"
    rows = all_rows(tx.db, sql, (boot_id(), tx.lease_ms + LONGEST_LEAD_MS))
    if repair:
        tx.db.executemany("UPDATE leaders SET until_ms = 0 WHERE name = ?", [row[:1] for row in rows])
    return [bad_lead(*row, repaired=repair) for row in rows]


def _stray_refusals(tx: SqliteTx, *, repair: bool) -> list[Violation]:
    rows = all_rows(tx.db, "SELECT DISTINCT job_id FROM refusals WHERE job_id NOT IN (SELECT id FROM jobs)")
    if repair:
        tx.db.executemany("DELETE FROM refusals WHERE job_id = ?", rows)
    return [stray_refusal(job_id, repaired=repair) for (job_id,) in rows]


def _stranded_keys(tx: SqliteTx, *, repair: bool) -> list[Violation]:
    """Blocked rows that nothing will bring back: their key has a free slot and nothing ready in their queue."""
    rows = all_rows(
        tx.db,
        "WITH blocked AS MATERIALIZED (SELECT concurrency_key AS key, queue, count(*) AS n FROM jobs WHERE lane = 3 "
        "GROUP BY concurrency_key, queue) "
        "SELECT key, queue, n FROM blocked LEFT JOIN limits USING (key) "
        "WHERE (most IS NULL OR most > (SELECT count(*) FROM jobs WHERE concurrency_key = blocked.key "
        "AND session IS NOT NULL)) AND NOT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_key_ready "
        "WHERE lane = 1 AND concurrency_key = blocked.key AND queue = blocked.queue)",
    )
    found = []
    for key, queue, n in rows:
        if repair:
            free_slots(tx, key)
        message = f"{n} jobs of queue {queue!r} wait for the concurrency key {key!r}, which has a free slot"
        done = "the best of them is ready again" if repair else None
        found.append(Violation(code="key_stranded", message=message, repaired=done))
    return found
