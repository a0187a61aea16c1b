"""Sessions, leadership, queue settings, limits and schedules, inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from ...lifecycle import JOB, UNIT, Chain
from ...model import Leadership, QueueSettings, Schedule, Session
from ..boot import boot_id
from ..bounds import TICKS_KEPT_MS
from ..change_check import not_leader
from ..port import InsertResult, NewJob, Overdue, Pulse
from ..records import DRAINING, MORE, QUEUES, SCHEDULES, SESSIONS
from ..routes import offer_from, offer_text
from .changes import insert
from .engine import SqliteTx
from .liveness import SessionFileLocks
from .rows import readable_jobs
from .selection import free_slots
from .sql import all_rows, first_row, marks, value

_STOPPING = tuple(sorted({*JOB.named("stopping"), *UNIT.named("stopping")}))
#: the rows that a beat lists: a leader assigned them, or they must stop
_LISTED = ("dispatched", *_STOPPING)
_OF_A_BEAT = f"SELECT id, status FROM jobs WHERE session = ? AND status IN ({marks(_LISTED)})"
_BEAT = f"UPDATE sessions SET beat_ms = ? WHERE id = ? AND dead = 0 RETURNING {', '.join(DRAINING)}"
_LIVING = f"SELECT {SESSIONS.names} FROM sessions WHERE id = ? AND dead = 0"
#: the most subscribers to wake for one queue
_MOST_WOKEN = 1000
_SESSION = (
    f"SELECT {SESSIONS.names}, offer, boot FROM sessions LEFT JOIN offers ON session = id ORDER BY started_ms, id"
)
_OPEN_SESSION = (
    f"INSERT INTO sessions ({SESSIONS.names}, boot, standing) VALUES ({marks(SESSIONS.columns)}, ?, ?) "
    f"ON CONFLICT (id) DO UPDATE SET beat_ms = excluded.beat_ms, {MORE} = excluded.{MORE}, "
    # a standing session keeps its id: it may be opened again while a sweep has yet to take its rows back
    "standing = excluded.standing, dead = CASE WHEN excluded.standing THEN 0 ELSE dead END"
)


def open_session(tx: SqliteTx, session: Session) -> None:
    opened = msgspec.structs.replace(
        session, started_ms=session.started_ms or tx.now_ms, beat_ms=tx.lease_ms, dead=False
    )
    tx.db.execute(_OPEN_SESSION, (*SESSIONS.values(opened), boot_id(), session.standing))
    if session.offer is None:
        tx.db.execute("DELETE FROM offers WHERE session = ?", (session.id,))
    else:
        tx.db.execute(
            "INSERT OR REPLACE INTO offers (session, offer) VALUES (?, ?)", (session.id, offer_text(session.offer))
        )


def beat(tx: SqliteTx, sessions: Sequence[str]) -> list[Pulse]:
    pulses = []
    for session in sessions:
        beaten = first_row(tx.db, _BEAT, (tx.lease_ms, session))
        if beaten is None:
            pulses.append(Pulse(session=session, known=False))
            continue
        rows = all_rows(tx.db, _OF_A_BEAT, (session, *_LISTED))
        since_ms, by = beaten
        pulses.append(
            Pulse(
                session=session,
                known=True,
                cancelling=tuple(job_id for job_id, status in rows if status != "dispatched"),
                assigned=tuple(job_id for job_id, status in rows if status == "dispatched"),
                draining_by=None if since_ms is None else by,
            )
        )
    return pulses


def drain(tx: SqliteTx, sessions: Sequence[str], by: str) -> list[bool]:
    return [_ask_to_drain(tx, session, by) for session in sessions]


def _ask_to_drain(tx: SqliteTx, session: str, by: str) -> bool:
    if (row := first_row(tx.db, _LIVING, (session,))) is None:
        return False
    found = SESSIONS.read(row)
    for column, new in SESSIONS.changed(found, found.drained(tx.now_ms, by)).items():
        tx.db.execute(f"UPDATE sessions SET {column} = ? WHERE id = ?", (new, session))
    return True


def close_session(tx: SqliteTx, session: str) -> None:
    """Delete a session; if rows still name it, it stays marked dead until they are taken back."""
    tx.db.execute("UPDATE sessions SET dead = 1, standing = 0 WHERE id = ?", (session,))
    _depose(tx, session)
    _delete_dead(tx)


def sessions(db: apsw.Connection) -> list[Session]:
    found = []
    for *row, offer, boot in all_rows(db, _SESSION):
        session = SESSIONS.read(row, {"offer": offer_from(offer)})
        # sessions of another boot are dead, whether a sweep has noticed it or not
        living = session.standing or boot == boot_id()
        found.append(session if living else msgspec.structs.replace(session, dead=True))
    return found


def overdue(tx: SqliteTx, locks: SessionFileLocks, limit: int, asked_ms: int) -> tuple[list[Overdue], list[str]]:
    """Declare sessions dead, then list the rows they held and the rows past their time; and the sessions that were
    found dead.

    Silence is judged as of `asked_ms`, the time of the call: while the database is locked, no beat arrives either."""
    dead = []
    for session, pid, beat_ms, lease_s, boot in all_rows(
        tx.db, "SELECT id, pid, beat_ms, lease_s, boot FROM sessions WHERE dead = 0 AND NOT standing"
    ):
        silent = boot != boot_id() or asked_ms - beat_ms > lease_s * 1000
        if silent or (pid and locks.is_free(session)):
            tx.db.execute("UPDATE sessions SET dead = 1 WHERE id = ?", (session,))
            _depose(tx, session)
            dead.append(session)
    _delete_dead(tx)
    held = readable_jobs(
        tx.db,
        "FROM jobs WHERE session IS NOT NULL AND session NOT IN (SELECT id FROM sessions WHERE dead = 0) LIMIT ?",
        (limit,),
    )
    late = readable_jobs(
        tx.db,
        "FROM jobs WHERE expires_ms <= ? AND settled_ms IS NULL ORDER BY expires_ms LIMIT ?",
        (tx.now_ms, limit),
    )
    found = {job.id: Overdue(job, "time") for job in late}
    found.update({job.id: Overdue(job, "session") for job in held})
    return list(found.values())[:limit], dead


def lead(tx: SqliteTx, locks: SessionFileLocks, name: str, session: str, ttl_s: float) -> Leadership:
    row = first_row(tx.db, "SELECT holder, epoch, until_ms, boot FROM leaders WHERE name = ?", (name,))
    until_ms = tx.lease_ms + int(ttl_s * 1000)
    if row is None:
        epoch = 1
    else:
        holder, epoch, held_until_ms, boot = row
        # a time later than its holder can have requested is damaged: without this there would be no leader until then
        latest_ms = tx.lease_ms + 2 * int(ttl_s * 1000)
        current = boot == boot_id() and tx.lease_ms < held_until_ms <= latest_ms
        if current and holder != session and not _is_dead(tx, locks, holder):
            return Leadership(name=name, holder=holder, epoch=epoch, until_ms=held_until_ms)
        if holder != session or boot != boot_id():
            epoch += 1
    tx.db.execute(
        "INSERT OR REPLACE INTO leaders (name, holder, epoch, until_ms, boot) VALUES (?, ?, ?, ?, ?)",
        (name, session, epoch, until_ms, boot_id()),
    )
    return Leadership(name=name, holder=session, epoch=epoch, until_ms=until_ms)


def _is_dead(tx: SqliteTx, locks: SessionFileLocks, session: str) -> bool:
    """Whether a session is marked dead or its lock is free. An unknown session counts as alive until its time is
    over."""
    row = first_row(tx.db, "SELECT pid, dead, boot, standing FROM sessions WHERE id = ?", (session,))
    if row is None:
        return False
    pid, dead, boot, standing = row
    if dead or standing:
        return bool(dead)
    return boot != boot_id() or (bool(pid) and locks.is_free(session))


def _depose(tx: SqliteTx, session: str) -> None:
    """End the leadership of a dead session now: its row and lock may be deleted by the time another session asks."""
    tx.db.execute("UPDATE leaders SET until_ms = 0 WHERE holder = ?", (session,))


def resign(tx: SqliteTx, held: Leadership) -> None:
    tx.db.execute(
        "UPDATE leaders SET until_ms = 0 WHERE name = ? AND holder = ? AND epoch = ?",
        (held.name, held.holder, held.epoch),
    )


def fence(tx: SqliteTx, held: Leadership | None) -> None:
    """Refuse the writes of a leader whose epoch is over."""
    if held is None:
        return
    row = first_row(tx.db, "SELECT holder, epoch, until_ms, boot FROM leaders WHERE name = ?", (held.name,))
    if row is None:
        raise not_leader(held)
    holder, epoch, until_ms, boot = row
    leads = until_ms > tx.lease_ms and boot == boot_id()
    if not leads or (holder, epoch) != (held.holder, held.epoch):
        current = Leadership(name=held.name, holder=holder if leads else "", epoch=epoch, until_ms=until_ms)
        raise not_leader(held, current)


def set_queue(tx: SqliteTx, settings: QueueSettings) -> None:
    tx.db.execute(
        f"INSERT OR REPLACE INTO queues ({QUEUES.names}) VALUES ({marks(QUEUES.columns)})", QUEUES.values(settings)
    )
    if not settings.paused:
        ready = value(
            tx.db,
            "SELECT (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE lane = 1 AND queue = ?1 LIMIT ?3)) "
            "+ (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE lane = 2 AND queue = ?1 AND due_ms <= ?2 LIMIT ?3))",
            (settings.name, tx.now_ms, _MOST_WOKEN),
        )
        tx.wake(f"queue:{settings.name}", ready)


def queues(db: apsw.Connection) -> list[QueueSettings]:
    return [QUEUES.read(row) for row in all_rows(db, f"SELECT {QUEUES.names} FROM queues ORDER BY name")]


def set_limit(tx: SqliteTx, key: str, most: int | None) -> None:
    if most is None:
        tx.db.execute("DELETE FROM limits WHERE key = ?", (key,))
    else:
        tx.db.execute("INSERT OR REPLACE INTO limits (key, most) VALUES (?, ?)", (key, most))
    free_slots(tx, key)


def put_schedule(tx: SqliteTx, schedule: Schedule) -> None:
    tx.db.execute(
        f"INSERT INTO schedules ({SCHEDULES.names}) VALUES ({marks(SCHEDULES.columns)}) "
        "ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, "
        "last_tick_ms = CASE WHEN last_tick_ms IS NULL "
        "OR excluded.last_tick_ms > last_tick_ms THEN excluded.last_tick_ms ELSE last_tick_ms END",
        SCHEDULES.values(schedule),
    )


def pause_schedule(tx: SqliteTx, name: str, *, paused: bool) -> bool:
    tx.db.execute("UPDATE schedules SET paused = ? WHERE name = ?", (paused, name))
    return tx.db.changes() == 1


def schedules(db: apsw.Connection) -> list[Schedule]:
    return [SCHEDULES.read(row) for row in all_rows(db, f"SELECT {SCHEDULES.names} FROM schedules ORDER BY name")]


def drop_schedule(tx: SqliteTx, name: str) -> bool:
    tx.db.execute("DELETE FROM schedules WHERE name = ?", (name,))
    dropped = tx.db.changes() == 1
    tx.db.execute("DELETE FROM ticks WHERE schedule = ?", (name,))
    return dropped


def tick(tx: SqliteTx, name: str, at_ms: int, jobs: Sequence[NewJob], chain: Chain) -> list[InsertResult] | None:
    # older ticks may have been trimmed: then the last tick decides
    known = first_row(tx.db, "SELECT last_tick_ms FROM schedules WHERE name = ?", (name,))
    if known is not None and known[0] is not None and at_ms < known[0] - TICKS_KEPT_MS:
        return None
    tx.db.execute("INSERT OR IGNORE INTO ticks (schedule, at_ms) VALUES (?, ?)", (name, at_ms))
    if tx.db.changes() == 0:
        return None
    tx.db.execute("UPDATE schedules SET last_tick_ms = max(coalesce(last_tick_ms, 0), ?) WHERE name = ?", (at_ms, name))
    return insert(tx, jobs, chain)


def _delete_dead(tx: SqliteTx) -> None:
    tx.db.execute(
        "DELETE FROM sessions WHERE dead = 1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.session = sessions.id)"
    )
    tx.db.execute("DELETE FROM offers WHERE session NOT IN (SELECT id FROM sessions)")
    tx.db.execute("DELETE FROM claim_marks WHERE session NOT IN (SELECT id FROM sessions WHERE dead = 0)")
