"""The checks that need PostgreSQL itself: rows as they are stored, and damage that only the server can see.

A look reads what it compares in one statement, so that both sides are of one moment, also beside writers. It locks
nothing. A repair looks again in a transaction of its own and writes what follows from that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Protocol

import asyncpg

from ....lifecycle import JOB, UNIT, Chain, Event
from ....model import Job, Lane
from ...bounds import LONGEST_LEAD_MS
from ...open_claim import claim_event
from ...port import Audited, Violation
from ...row_codec import JOB_FIELDS
from ...violations import (
    bad_lead,
    quick_finding,
    stranded_key,
    stray_events,
    stray_refusal,
    stray_tombstone,
    wrong_tally,
)
from ..connection.engine import PostgresEngine, PostgresTx
from ..connection.pool import Db
from ..rows.codec import (
    INSERT_EVENTS,
    REWRITE_JOB,
    SELECT_EVENT,
    SELECT_JOB,
    event_arrays,
    event_columns,
    event_from,
    is_id,
    job_values,
    readable_job,
)
from ..write import waits
from ..write.selection import free_slots, lower_heads
from ..write.statements import savepoint
from . import duplicates, schema_objects

#: `jobs.id` is the column; `id` alone would be the selected text, and need a sort
_FIRST = f"{SELECT_JOB} ORDER BY jobs.id LIMIT $1"
_NEXT = f"{SELECT_JOB} WHERE jobs.id > $2 ORDER BY jobs.id LIMIT $1"
_EVENTS = f"""
SELECT {event_columns("events")} FROM unnest($1::uuid[], $2::integer[]) AS page (id, trimmed_seq)
JOIN mainstay.events ON events.job_id = page.id AND events.seq > page.trimmed_seq ORDER BY events.job_id, events.seq
"""


async def audit(db: Db, after: str, limit: int, chain: Chain) -> list[Audited]:
    rows = await (db.fetch(_NEXT, limit, after) if is_id(after) else db.fetch(_FIRST, limit))
    read = [(*readable_job(row, chain), row["open"]) for row in rows]
    events: dict[str, list[Event]] = {}
    for row in await db.fetch(_EVENTS, [job.id for job, _, _ in read], [job.trimmed_seq for job, _, _ in read]):
        events.setdefault(row["job_id"], []).append(event_from(row))
    return [
        Audited(
            job=job,
            events=[*events.get(job.id, ()), *([claim_event(job)] if is_open else ())],
            damaged=damaged,
            key=job.id,
        )
        for job, damaged, is_open in read
    ]


async def mend(tx: PostgresTx, found: Audited, after: Job, events: Sequence[Event], chain: Chain) -> bool:
    row = await tx.db.fetchrow(f"{SELECT_JOB} WHERE id = $1 FOR UPDATE", found.key)
    if row is None or row["version"] != found.job.version:
        return False
    sealed = [claim_event(readable_job(row, chain)[0])] if row["open"] else []
    try:
        async with savepoint(tx.db):
            await tx.db.execute(f"{REWRITE_JOB} WHERE id = ${len(JOB_FIELDS) + 1}", *job_values(after), found.key)
            # if the number of the claim's event is damaged, its place may be taken; the repair's event is enough
            await tx.db.execute(f"{INSERT_EVENTS} ON CONFLICT DO NOTHING", *event_arrays(sealed))
            await tx.db.execute(INSERT_EVENTS, *event_arrays(events))
    except (asyncpg.UniqueViolationError, asyncpg.DataError):
        return False
    if after.parent is None:
        tx.count(row["queue"], row["status"], None)
        tx.count(after.queue, None, after.status)
    if after.concurrency_key is not None:
        await free_slots(tx, after.concurrency_key)
    if after.lane == Lane.READY:
        await lower_heads(tx, [after])
    await waits.settle(tx, [after], chain)
    return True


async def fast_findings(engine: PostgresEngine) -> tuple[str, ...]:
    """The quick check when a store is opened: what the indexes alone can show."""
    rows = await engine.call(_QUICK_LOOK, [*JOB.states, *UNIT.states])
    return tuple(quick_finding(what, n, status) for what, status, n in rows if n)


_QUICK_LOOK = """
SELECT 'unknown', status, sum(n)::bigint FROM mainstay.tallies WHERE status <> ALL ($1::text[])
GROUP BY status HAVING sum(n) <> 0
UNION ALL
SELECT 'aside', NULL, count(*) FROM mainstay.jobs WHERE lane = 4
UNION ALL
SELECT 'settled', NULL, count(*) FROM mainstay.jobs WHERE session IS NOT NULL AND settled_ms IS NOT NULL
UNION ALL
SELECT 'strange', NULL, count(*) FROM mainstay.jobs WHERE session IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM mainstay.sessions WHERE sessions.id = jobs.session)
"""


# -- the check ----------------------------------------------------------------------------------


class _Look(Protocol):
    """One of the checks. It repairs what it finds if asked to."""

    def __call__(self, tx: PostgresTx, chain: Chain, /, *, repair: bool) -> Awaitable[list[Violation]]: ...


async def check(engine: PostgresEngine, chain: Chain, *, repair: bool) -> list[Violation]:
    """Everything that the server can see, in an order in which repairs build on each other."""
    missing = await engine.read(lambda db: schema_objects.missing(db, engine.address))
    unsure = {index.name for index in missing.indexes if index.unique}
    if not repair:
        return await engine.read(lambda db: _looked(engine, db, chain, missing, unsure))
    found: list[Violation] = []
    if unsure:
        found += await engine.transact(lambda tx: duplicates.check(tx, unsure, chain, repair=True))
    found += await schema_objects.make(engine, missing)
    for look in _LOOKS:
        found += await engine.transact(partial(_repaired, look, chain))
    return found


async def _looked(
    engine: PostgresEngine, db: Db, chain: Chain, missing: schema_objects.MissingObjects, unsure: set[str]
) -> list[Violation]:
    """All checks in one snapshot, with nothing written."""
    tx = PostgresTx(db, engine.clock.now_ms(), engine.clock.lease_ms())
    found = await duplicates.check(tx, unsure, chain, repair=False)
    found += missing.violations()
    for look in _LOOKS:
        found += await look(tx, chain, repair=False)
    return found


async def _repaired(look: _Look, chain: Chain, tx: PostgresTx) -> list[Violation]:
    return await look(tx, chain, repair=True)


async def _stray_events(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Events of a job that does not exist and was not deleted: kept, and closed with a tombstone."""
    rows = await tx.db.fetch(
        "SELECT job_id::text, max(seq) FROM mainstay.events "
        "WHERE NOT EXISTS (SELECT 1 FROM mainstay.jobs WHERE jobs.id = events.job_id) "
        "GROUP BY job_id HAVING NOT bool_or(flag = 'tombstone')"
    )
    for job_id, seq in rows if repair else ():
        last = event_from(await tx.db.fetchrow(f"{SELECT_EVENT} WHERE job_id = $1 AND seq = $2", job_id, seq))
        await tx.db.execute(INSERT_EVENTS, *event_arrays([stray_tombstone(last, tx.now_ms, chain)]))
    return [stray_events(job_id, seq, repaired=repair) for job_id, seq in rows]


async def _tallies(tx: PostgresTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    """A repair adds the difference: that stays the same, whatever other transactions write at the same time."""
    rows = await tx.db.fetch(
        "SELECT queue, status, sum(counted)::bigint, sum(present)::bigint FROM ("
        "SELECT queue, status, n AS counted, 0 AS present FROM mainstay.tallies UNION ALL "
        "SELECT queue, status, 0, count(*) FROM mainstay.jobs WHERE parent IS NULL GROUP BY queue, status"
        ") AS both_sides GROUP BY queue, status HAVING sum(counted) <> sum(present) ORDER BY queue, status"
    )
    if repair:
        for queue, status, counted, present in rows:
            tx.tallies[queue, status] += present - counted
    return [wrong_tally(*row, repaired=repair) for row in rows]


async def _stranded_keys(tx: PostgresTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    """Blocked rows that no later event would free: their key has a free slot and no ready row in their queue."""
    rows = await tx.db.fetch(
        "WITH blocked AS MATERIALIZED (SELECT concurrency_key AS key, queue, count(*) AS n FROM mainstay.jobs "
        "WHERE lane = 3 GROUP BY concurrency_key, queue) "
        "SELECT key, queue, n FROM blocked LEFT JOIN mainstay.limits USING (key) "
        "WHERE (most IS NULL OR most > (SELECT count(*) FROM mainstay.jobs WHERE concurrency_key = blocked.key "
        "AND session IS NOT NULL)) AND NOT EXISTS (SELECT 1 FROM mainstay.jobs "
        "WHERE lane = 1 AND concurrency_key = blocked.key AND jobs.queue = blocked.queue) ORDER BY key, queue"
    )
    if repair:
        for key, _, _ in rows:
            await free_slots(tx, key)
    return [stranded_key(*row, repaired=repair) for row in rows]


async def _stray_refusals(tx: PostgresTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    strays = "FROM mainstay.refusals WHERE NOT EXISTS (SELECT FROM mainstay.jobs WHERE jobs.id = refusals.job_id)"
    rows = await tx.db.fetch(f"SELECT DISTINCT job_id::text {strays}")
    if repair and rows:
        await tx.db.execute(f"DELETE {strays}")
    return [stray_refusal(job_id, repaired=repair) for (job_id,) in rows]


async def _leads(tx: PostgresTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    """Leaderships that end too far ahead."""
    latest_ms = tx.lease_ms + LONGEST_LEAD_MS
    rows = await tx.db.fetch("SELECT name, holder, until_ms FROM mainstay.leaders WHERE until_ms > $1", latest_ms)
    if repair and rows:
        await tx.db.execute("UPDATE mainstay.leaders SET until_ms = 0 WHERE until_ms > $1", latest_ms)
    return [bad_lead(*row, repaired=repair) for row in rows]


_LOOKS: tuple[_Look, ...] = (_stray_events, _tallies, _stranded_keys, waits.check, _stray_refusals, _leads)
