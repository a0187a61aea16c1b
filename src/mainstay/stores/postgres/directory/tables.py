"""Sessions, leadership, queue settings, limits and schedules. Operations that must be one round trip are functions of
the schema (`sql/sessions.sql`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ....lifecycle import Chain
from ....model import Leadership, QueueSettings, Schedule, Session
from ...bounds import TICKS_KEPT_MS
from ...port import InsertResult, NewJob, Overdue
from ...records import MORE, QUEUES, SCHEDULES, SESSIONS as SHARED, RecordTable
from ...routes import offer_from, offer_text
from ..connection.engine import PostgresEngine, PostgresTx
from ..rows.codec import SELECT_JOB, read_text, readable_job, stored_text
from ..write import changes
from ..write.selection import free_slots
from ..write.statements import fence

#: the most subscribers to wake for one queue
_MOST_WOKEN = 1000

#: the dead sessions that hold rows, by one look into the index per holder, without reading the rows; and NULL if a
#: session is suspected to be dead
_HELD_BY_THE_DEAD = """
WITH RECURSIVE holders (id) AS (
    (SELECT session FROM mainstay.jobs WHERE session IS NOT NULL ORDER BY session LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.session FROM mainstay.jobs j
        WHERE j.session IS NOT NULL AND j.session > h.id ORDER BY j.session LIMIT 1
    )
    FROM holders h WHERE h.id IS NOT NULL
)
SELECT h.id FROM holders h
WHERE h.id IS NOT NULL AND NOT EXISTS (SELECT FROM mainstay.sessions s WHERE s.id = h.id AND NOT s.dead)
UNION ALL
(SELECT NULL FROM mainstay.sessions s WHERE s.lost_ms IS NOT NULL AND s.locked AND NOT s.dead LIMIT 1)
"""
#: offers of deleted sessions; those of swept sessions are deleted when another session is opened or closed
_FORGET_OFFERS = """
DELETE FROM mainstay.offers o WHERE NOT EXISTS (SELECT FROM mainstay.sessions s WHERE s.id = o.session)
"""
#: the time in a subquery, so that the index is used
_LATE = f"""
{SELECT_JOB} WHERE expires_ms <= (SELECT mainstay.clock($1)) AND settled_ms IS NULL ORDER BY expires_ms LIMIT $2
"""


def _stored(text: str) -> str:
    return stored_text(text) or ""


def _read(text: str) -> str:
    return read_text(text) or ""


def marks(columns: Sequence[str]) -> str:
    """The placeholders of values: $1, $2 and so on."""
    return ", ".join(f"${place}" for place, _ in enumerate(columns, 1))


#: a sweep selects by `standing`
SESSIONS = RecordTable(Session, *SHARED.columns[:-1], "standing", MORE, apart=["offer"])
_BEAT = SESSIONS.columns.index("beat_ms")
#: A session that is opened again keeps what other processes have written into its row. But a standing one keeps its id:
#: it may be opened again while a sweep has yet to take its rows back.
_OPEN_SESSION = f"""
INSERT INTO mainstay.sessions ({SESSIONS.names}, locked, incarnation)
VALUES (
    {marks(SESSIONS.columns).replace(f"${_BEAT + 1},", f"mainstay.clock(${_BEAT + 1}),")}, ${len(SESSIONS.columns) + 1},
    (SELECT i.name FROM mainstay.incarnation() i)
)
ON CONFLICT (id) DO UPDATE SET
    beat_ms = excluded.beat_ms, locked = excluded.locked, incarnation = excluded.incarnation, lost_ms = NULL,
    standing = excluded.standing, dead = sessions.dead AND NOT excluded.standing, {MORE} = excluded.{MORE}
"""
_SESSIONS = f"""
SELECT {SESSIONS.names}, offer FROM mainstay.sessions LEFT JOIN mainstay.offers ON session = id ORDER BY started_ms, id
"""
_CLOSE_SESSION = "SELECT mainstay.close_session($1)"
_SET_QUEUE = f"""
INSERT INTO mainstay.queues ({QUEUES.names}) VALUES ({marks(QUEUES.columns)})
ON CONFLICT (name) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in QUEUES.columns[1:])}
"""


# -- sessions ---------------------------------------------------------------------------------


async def open_session(engine: PostgresEngine, session: Session, *, locked: bool) -> None:
    """`locked`: this process already holds its lock."""
    opened = msgspec.structs.replace(session, started_ms=session.started_ms or engine.clock.now_ms(), dead=False)
    values = SESSIONS.values(opened, _stored)
    values[_BEAT] = engine.given_lease_ms
    await engine.call(_OPEN_SESSION, *values, locked)
    await engine.call(_FORGET_OFFERS)
    if session.offer is None:
        await engine.call("DELETE FROM mainstay.offers WHERE session = $1", session.id)
    else:
        await engine.call(
            "INSERT INTO mainstay.offers (session, routes, offer) VALUES ($1, $2, $3) "
            "ON CONFLICT (session) DO UPDATE SET routes = excluded.routes, offer = excluded.offer",
            session.id,
            [stored_text(route) for route in session.offer.tasks],
            stored_text(offer_text(session.offer) or ""),
        )


async def drain(engine: PostgresEngine, sessions: Sequence[str], by: str) -> list[bool]:
    rows = await engine.call(
        "SELECT id FROM mainstay.drain($1, $2, $3) AS live (id)", list(sessions), stored_text(by), engine.given_ms
    )
    live = {row[0] for row in rows}
    return [session in live for session in sessions]


async def close_session(engine: PostgresEngine, session: str, *, lead: Leadership | None = None) -> None:
    """Delete a session; if rows still name it, it stays marked dead until they are taken back."""
    if lead is None:
        await engine.call(_CLOSE_SESSION, session)
    else:

        async def close(tx: PostgresTx) -> None:
            await fence(tx, lead)
            await tx.db.execute(_CLOSE_SESSION, session)

        await engine.transact(close)
    await engine.call(_FORGET_OFFERS)


async def sessions(engine: PostgresEngine) -> list[Session]:
    return [
        SESSIONS.read(row, {"offer": offer_from(read_text(offer))}, text=_read)
        for *row, offer in await engine.call(_SESSIONS)
    ]


async def overdue(engine: PostgresEngine, limit: int, chain: Chain) -> tuple[list[Overdue], bool]:
    """Declare sessions dead, then list the rows they held and the rows past their time; and whether a session is
    suspected to be dead, because its lock is free. Each statement is a transaction of its own: a sweeper that stops
    between two of them keeps nothing locked."""
    await engine.call("SELECT mainstay.bury($1, $2)", engine.given_lease_ms, engine.clock.now_ms())
    rows = [row[0] for row in await engine.call(_HELD_BY_THE_DEAD)]
    dead = [each for each in rows if each is not None]
    held: list[Any] = []
    if dead:
        held = await engine.call(f"{SELECT_JOB} WHERE session = ANY ($1) LIMIT $2", dead, limit)
    late = await engine.call(_LATE, engine.given_ms, limit)
    found: dict[str, Overdue] = {}
    for row in late:
        job, _ = readable_job(row, chain)
        found[job.id] = Overdue(job, "time")
    for row in held:
        job, _ = readable_job(row, chain)
        found[job.id] = Overdue(job, "session")
    return list(found.values())[:limit], len(dead) < len(rows)


# -- leadership -------------------------------------------------------------------------------


async def lead(engine: PostgresEngine, name: str, session: str, ttl_s: float) -> Leadership:
    [row] = await engine.call(
        "SELECT * FROM mainstay.lead($1, $2, $3, $4)",
        stored_text(name),
        session,
        int(ttl_s * 1000),
        engine.given_lease_ms,
        lasting=False,
        vital=True,
    )
    return Leadership(name=name, holder=row["holder"], epoch=row["epoch"], until_ms=row["until_ms"])


async def resign(engine: PostgresEngine, held: Leadership) -> None:
    await engine.call(
        "UPDATE mainstay.leaders SET until_ms = 0 WHERE name = $1 AND holder = $2 AND epoch = $3",
        stored_text(held.name),
        held.holder,
        held.epoch,
    )


# -- settings ---------------------------------------------------------------------------------


async def set_queue(tx: PostgresTx, settings: QueueSettings) -> None:
    await tx.db.execute(_SET_QUEUE, *QUEUES.values(settings, _stored))
    if not settings.paused:
        ready = await tx.db.fetchval(
            "SELECT (SELECT count(*) FROM (SELECT FROM mainstay.jobs WHERE lane = 1 AND queue = $1 LIMIT $3) a) + "
            "(SELECT count(*) FROM ("
            "SELECT FROM mainstay.jobs WHERE lane = 2 AND queue = $1 AND due_ms <= $2 LIMIT $3) b)",
            settings.name,
            tx.now_ms,
            _MOST_WOKEN,
        )
        tx.wake(f"queue:{settings.name}", ready)


async def queues(engine: PostgresEngine) -> list[QueueSettings]:
    rows = await engine.call(f"SELECT {QUEUES.names} FROM mainstay.queues ORDER BY name")
    return [QUEUES.read(row, text=_read) for row in rows]


async def set_limit(tx: PostgresTx, key: str, most: int | None) -> None:
    if most is None:
        await tx.db.execute("DELETE FROM mainstay.limits WHERE key = $1", key)
    else:
        await tx.db.execute(
            "INSERT INTO mainstay.limits AS l (key, most) VALUES ($1, $2) "
            "ON CONFLICT (key) DO UPDATE SET most = excluded.most",
            key,
            most,
        )
    await free_slots(tx, key)


async def limits(engine: PostgresEngine) -> dict[str, int]:
    return {row[0]: row[1] for row in await engine.call("SELECT key, most FROM mainstay.limits ORDER BY key")}


# -- schedules --------------------------------------------------------------------------------


async def put_schedule(engine: PostgresEngine, schedule: Schedule) -> None:
    await engine.call(
        f"INSERT INTO mainstay.schedules AS s ({SCHEDULES.names}) VALUES ({marks(SCHEDULES.columns)}) "
        "ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, "
        "last_tick_ms = greatest(s.last_tick_ms, excluded.last_tick_ms)",
        *SCHEDULES.values(schedule),
    )


async def pause_schedule(engine: PostgresEngine, name: str, *, paused: bool) -> bool:
    rows = await engine.call("UPDATE mainstay.schedules SET paused = $2 WHERE name = $1 RETURNING 1", name, paused)
    return bool(rows)


async def schedules(engine: PostgresEngine) -> list[Schedule]:
    rows = await engine.call(f"SELECT {SCHEDULES.names} FROM mainstay.schedules ORDER BY name")
    return [SCHEDULES.read(row) for row in rows]


async def drop_schedule(engine: PostgresEngine, name: str) -> bool:
    rows = await engine.call(
        "WITH ticks AS (DELETE FROM mainstay.ticks WHERE schedule = $1) "
        "DELETE FROM mainstay.schedules WHERE name = $1 RETURNING 1",
        name,
    )
    return bool(rows)


async def tick(
    tx: PostgresTx, name: str, at_ms: int, jobs: Sequence[NewJob], chain: Chain
) -> list[InsertResult] | None:
    # older ticks may have been trimmed: then the last tick decides
    last_ms = await tx.db.fetchval("SELECT last_tick_ms FROM mainstay.schedules WHERE name = $1", name)
    if last_ms is not None and at_ms < last_ms - TICKS_KEPT_MS:
        return None
    # a second call for the same tick waits here for the first, and then finds it
    new = await tx.db.fetchrow(
        "INSERT INTO mainstay.ticks (schedule, at_ms) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1", name, at_ms
    )
    if new is None:
        return None
    await tx.db.execute(
        "UPDATE mainstay.schedules SET last_tick_ms = greatest(last_tick_ms, $2) WHERE name = $1", name, at_ms
    )
    return await changes.insert_within(tx, jobs, chain)
