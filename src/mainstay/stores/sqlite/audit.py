"""The checks that need SQLite itself: rows as they are stored, and damage that only the engine can see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import apsw

from ...errors import StoreDamaged
from ...lifecycle import JOB, UNIT, Chain, Event
from ...model import Job
from ..boot import boot_id
from ..bounds import LONGEST_LEAD_MS
from ..port import Audited, Violation
from ..violations import (
    bad_lead,
    duplicate_id,
    duplicate_key,
    quick_finding,
    second_row_move,
    stranded_key,
    stray_events,
    stray_refusal,
    stray_tombstone,
    wrong_tally,
)
from . import waits
from .damaged_text import read_rows
from .engine import SqliteTx
from .errors import damage_text
from .rows import INSERT_EVENT, JOB_COLUMNS, REWRITE_JOB, SELECT_EVENT, event_values, job_values, readable_job
from .schema import VERSION, columns_of, expected_columns, expected_objects, tables_of, version_of
from .selection import free_slots
from .sql import all_rows, first_row, savepoint, value

#: when a store is opened, a file up to this size is read in full
QUICK_CHECK_BYTES = 16 * 1024 * 1024

#: columns of other tables that name their rows
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
        # by the stored bytes of the id, which may not be valid text
        events_tail = "FROM events WHERE job_id = CAST(? AS TEXT) AND seq > ? ORDER BY seq"
        events, _ = read_rows(db, "events", events_tail, (row[-1], job.trimmed_seq))
        wrong = {**broken.get(at, {}), **damaged}
        found.append(Audited(job=job, events=[Event(*event) for event in events], damaged=wrong, key=row[-2]))
    return found


def mend(tx: SqliteTx, found: Audited, after: Job, events: Sequence[Event], chain: Chain) -> bool:
    # as bytes, because either may not be valid text
    sql = "SELECT version, CAST(status AS BLOB), CAST(queue AS BLOB) FROM jobs WHERE rowid = ?"
    row = first_row(tx.db, sql, (found.key,))
    if row is None or row[0] != found.job.version:
        return False
    try:
        with savepoint(tx.db):
            tx.db.execute(REWRITE_JOB, (*job_values(after), found.key))
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
    """Raise `StoreDamaged` if the file is damaged. Damage to an index alone is returned as text."""
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
    """Refuse a table whose declaration is not ours. After one flipped bit in a column's name every row would read as
    damaged: a quoted name that is not a column is a string."""
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
    """A newer version may have added columns; those that this version uses must be present."""
    present = {name: columns_of(db, name) for name in tables_of(db)}
    for table, columns in expected_columns().items():
        if lost := sorted(columns.keys() - present.get(table, {}).keys()):
            raise StoreDamaged(damage_text(path, f"the table {table} lacks {', '.join(lost)}"))


def fast_findings(db: apsw.Connection) -> list[str]:
    """The quick check when a store is opened: what the indexes alone can show."""
    findings = []
    known = {*JOB.states, *UNIT.states}
    for status, n in all_rows(db, "SELECT status, sum(n) FROM tallies GROUP BY status HAVING sum(n) != 0"):
        if status not in known:
            findings.append(quick_finding("unknown", n, status))
    for what, where in _QUICK_LOOKS.items():
        if n := value(db, f"SELECT count(*) FROM jobs WHERE {where}"):
            findings.append(quick_finding(what, n))
    return findings


_QUICK_LOOKS = {
    "aside": "lane = 4",
    "settled": "session IS NOT NULL AND settled_ms IS NOT NULL",
    "strange": "session IS NOT NULL AND session NOT IN (SELECT id FROM sessions)",
}


class _Look(Protocol):
    """One of the checks. It repairs what it finds if asked to."""

    def __call__(self, tx: SqliteTx, chain: Chain, /, *, repair: bool) -> list[Violation]: ...


def check(tx: SqliteTx, path: Path, chain: Chain, *, repair: bool) -> list[Violation]:
    """Everything that the engine can see, in an order in which repairs build on each other."""
    _same_schema(tx.db, path)
    found = [
        Violation(code="index_damaged", message=line, repaired="all indexes were rebuilt" if repair else None)
        for line in check_file(tx.db, path, quick=False)
    ]
    if found and repair:
        tx.db.execute("REINDEX")
    broken_text = None
    for look in _LOOKS:
        try:
            found += look(tx, chain, repair=repair)
        except UnicodeDecodeError as error:
            broken_text = f"some stored text is not UTF-8, so not everything could be compared: {error}"
    if broken_text is not None:
        done = _spell_names(tx) if repair else None
        found.append(Violation(code="broken_text", message=broken_text, repaired=done))
    return found


def _spell_names(tx: SqliteTx) -> str | None:
    """Make names readable again that a flipped bit has damaged. The next check shows what they belong to. Rows of jobs
    are repaired one by one, with their events."""
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
    """Several rows with one id: the one with the longest history is the job. The others get ids of their own and are
    quarantined, so that nothing is lost."""
    found = []
    for (job_id,) in all_rows(tx.db, "SELECT id FROM jobs NOT INDEXED GROUP BY id HAVING count(*) > 1"):
        rows = all_rows(
            tx.db,
            f"SELECT rowid, {JOB_COLUMNS} FROM jobs NOT INDEXED WHERE id = ? ORDER BY version DESC, rowid",
            (job_id,),
        )
        new_ids = [_set_copy_apart(tx, row[0], readable_job(row[1:])[0], chain) for row in rows[1:]] if repair else []
        found.append(duplicate_id(job_id, len(rows), new_ids))
    return found


def _set_copy_apart(tx: SqliteTx, rowid: int, job: Job, chain: Chain) -> str:
    new_id = f"{job.id[:24]}{rowid & 0xFFFFFFFFFFFF:012x}"
    moved = second_row_move(job, new_id, now_ms=tx.now_ms, chain=chain)
    tx.db.execute(REWRITE_JOB, (*job_values(moved.job), rowid))
    tx.db.executemany(INSERT_EVENT, [event_values(event) for event in moved.events])
    return new_id


def _duplicate_keys(tx: SqliteTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    rows = all_rows(
        tx.db, "SELECT scope, name, count(*), min(rowid) FROM keys NOT INDEXED GROUP BY scope, name HAVING count(*) > 1"
    )
    if repair:
        delete = "DELETE FROM keys WHERE scope = ? AND name = ? AND rowid != ?"
        tx.db.executemany(delete, [(scope, name, first) for scope, name, _, first in rows])
    return [duplicate_key(scope, name, n, repaired=repair) for scope, name, n, _ in rows]


def _missing_objects(tx: SqliteTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    if (version := version_of(tx.db)) > VERSION:
        return []  # only the newer version knows which indexes it needs
    present = {row[0] for row in all_rows(tx.db, "SELECT name FROM sqlite_schema")}
    missing = {name: sql for name, sql in expected_objects(version).items() if name not in present}
    if repair:
        for sql in missing.values():
            tx.db.execute(sql)
    done = "it was made again" if repair else None
    return [Violation(code="schema_incomplete", message=f"{name} is missing", repaired=done) for name in missing]


def _stray_events(tx: SqliteTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Events of a job that does not exist and was not deleted: kept, and closed with a tombstone."""
    rows = all_rows(
        tx.db,
        "SELECT job_id, max(seq) FROM events WHERE job_id NOT IN (SELECT id FROM jobs) "
        "GROUP BY job_id HAVING sum(flag = 'tombstone') = 0",
    )
    for job_id, seq in rows if repair else ():
        (last,) = all_rows(tx.db, f"{SELECT_EVENT} WHERE job_id = ? AND seq = ?", (job_id, seq))
        tx.db.execute(INSERT_EVENT, event_values(stray_tombstone(Event(*last), tx.now_ms, chain)))
    return [stray_events(job_id, seq, repaired=repair) for job_id, seq in rows]


def _tallies(tx: SqliteTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    counted: dict[tuple[str, str], int] = {}
    present: dict[tuple[str, str], int] = {}
    # one statement, so that both sides are of one moment, also beside other writers
    sql = (
        "SELECT 1, queue, status, n FROM tallies WHERE n != 0 UNION ALL "
        "SELECT 0, queue, status, count(*) FROM jobs WHERE parent IS NULL GROUP BY queue, status"
    )
    for is_tally, queue, status, n in all_rows(tx.db, sql):
        (counted if is_tally else present)[queue, status] = n
    # the tallies of this transaction are only written at its end
    for key, n in tx.tallies.items():
        counted[key] = counted.get(key, 0) + n
    found = []
    for queue, status in sorted({*counted, *present}):
        tally, true = counted.get((queue, status), 0), present.get((queue, status), 0)
        if tally == true:
            continue
        if repair:
            tx.tallies[queue, status] += true - tally
        found.append(wrong_tally(queue, status, tally, true, repaired=repair))
    return found


def _leads(tx: SqliteTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    sql = "SELECT name, holder, until_ms FROM leaders WHERE boot = ? AND until_ms > ?"
    rows = all_rows(tx.db, sql, (boot_id(), tx.lease_ms + LONGEST_LEAD_MS))
    if repair:
        tx.db.executemany("UPDATE leaders SET until_ms = 0 WHERE name = ?", [row[:1] for row in rows])
    return [bad_lead(*row, repaired=repair) for row in rows]


def _stray_refusals(tx: SqliteTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    rows = all_rows(tx.db, "SELECT DISTINCT job_id FROM refusals WHERE job_id NOT IN (SELECT id FROM jobs)")
    if repair:
        tx.db.executemany("DELETE FROM refusals WHERE job_id = ?", rows)
    return [stray_refusal(job_id, repaired=repair) for (job_id,) in rows]


def _stranded_keys(tx: SqliteTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    """Blocked rows that no later event would free: their key has a free slot and no ready row in their queue."""
    rows = all_rows(
        tx.db,
        "WITH blocked AS MATERIALIZED (SELECT concurrency_key AS key, queue, count(*) AS n FROM jobs WHERE lane = 3 "
        "GROUP BY concurrency_key, queue) "
        "SELECT key, queue, n FROM blocked LEFT JOIN limits USING (key) "
        "WHERE (most IS NULL OR most > (SELECT count(*) FROM jobs WHERE concurrency_key = blocked.key "
        "AND session IS NOT NULL)) AND NOT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_key_ready "
        "WHERE lane = 1 AND concurrency_key = blocked.key AND queue = blocked.queue)",
    )
    if repair:
        for key, _, _ in rows:
            free_slots(tx, key)
    return [stranded_key(key, queue, n, repaired=repair) for key, queue, n in rows]


_LOOKS: tuple[_Look, ...] = (
    _duplicate_ids,
    _duplicate_keys,
    _missing_objects,
    _stray_events,
    _tallies,
    _stranded_keys,
    _leads,
    _stray_refusals,
    waits.check,
)
