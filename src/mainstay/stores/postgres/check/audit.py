"""What the check needs from PostgreSQL: the rows as they are, and what only the engine can see.

What a look compares it reads in one statement, so it is of one moment, also beside those who write; and it locks
nothing. A repair looks again in a transaction of its own and writes what that shows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import asyncpg

from ....lifecycle import JOB, UNIT, Chain, Event
from ....model import Job, Lane
from ...bounds import LONGEST_LEAD_MS
from ...open_claim import claim_event
from ...port import Audited, Violation
from ...violations import bad_lead, stray_refusal
from ..connection.engine import PostgresEngine, PostgresTx
from ..connection.pool import Db
from ..rows.codec import (
    INSERT_EVENTS,
    JOB_FIELDS,
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

#: by the column: `ORDER BY id` would be the text that is read, and a sort
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
            # where the damage is in the number of the claim's event, its place may be taken: the repair's event tells
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
    """A glance at open: what the indexes alone can show."""
    known = [*JOB.states, *UNIT.states]
    findings = []
    for what, status, n in await engine.call(_GLANCE, known):
        if what == "unknown":
            findings.append(f"{n} jobs are {status!r}, a status this version does not know")
        elif n:
            findings.append(f"{n} {_GLANCED[what]}")
    return tuple(findings)


_GLANCE = """
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
_GLANCED = {
    "aside": "jobs could not be read and were set aside",
    "settled": "settled jobs still hold a claim",
    "strange": "jobs are held by unknown sessions; the next sweep releases them",
}


# -- the check ----------------------------------------------------------------------------------


async def check(engine: PostgresEngine, chain: Chain, *, repair: bool) -> list[Violation]:
    """All the engine can see, in an order in which repairs build on each other."""
    missing = await engine.read(lambda db: schema_objects.missing(db, engine.address))
    unsure = {index.name for index in missing.indexes if index.unique}
    found: list[Violation] = []
    if not repair:
        looks = (*_LOOKS, _leads(engine.given_lease_ms))
        return await engine.read(lambda db: _looked(PostgresTx(db, 0, 0), chain, missing, unsure, looks))
    if unsure:
        found += await engine.transact(lambda tx: duplicates.check(tx, unsure, chain, repair=True))
    found += await schema_objects.make(engine, missing)
    for look in (*_LOOKS, _leads(engine.given_lease_ms)):
        found += await engine.transact(_repairing(look, chain))
    return found


class _Look(Protocol):
    """One of the things to look at."""

    def __call__(self, tx: PostgresTx, chain: Chain, /, *, repair: bool) -> Awaitable[list[Violation]]: ...


def _repairing(look: _Look, chain: Chain) -> Callable[[PostgresTx], Awaitable[list[Violation]]]:
    return lambda tx: look(tx, chain, repair=True)


async def _looked(
    tx: PostgresTx, chain: Chain, missing: schema_objects.MissingObjects, unsure: set[str], looks: Iterable[_Look]
) -> list[Violation]:
    """Nothing is written; `tx` is of a moment that does not pass."""
    found = await duplicates.check(tx, unsure, chain, repair=False)
    found += missing.told()
    for look in looks:
        found += await look(tx, chain, repair=False)
    return found


async def _stray_events(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Events of a job that is not there and was not deleted: kept, and closed with a tombstone."""
    strays = await tx.db.fetch(
        "SELECT job_id::text, max(seq) FROM mainstay.events "
        "WHERE NOT EXISTS (SELECT 1 FROM mainstay.jobs WHERE jobs.id = events.job_id) "
        "GROUP BY job_id HAVING NOT bool_or(flag = 'tombstone')"
    )
    found = []
    for job_id, seq in strays:
        done = None
        if repair:
            row = await tx.db.fetchrow(f"{SELECT_EVENT} WHERE job_id = $1 AND seq = $2", job_id, seq)
            await tx.db.execute(INSERT_EVENTS, *event_arrays([_stone(event_from(row), tx.now_ms, chain)]))
            done = "the events were kept and closed with a tombstone"
        message = f"there are {seq} events or fewer but no such job"
        found.append(Violation(code="stray_events", job_id=job_id, message=message, repaired=done))
    return found


def _stone(last: Event, now_ms: int, chain: Chain) -> Event:
    why = "the job's row was gone"
    body = (last.job_id, last.seq + 1, now_ms, last.to, last.to, "check", why, last.token, "tombstone", None)
    return Event(*body, chain.digest(last.digest, body))


async def _tallies(tx: PostgresTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    """What is counted wrong stays wrong by as much, whatever is written meanwhile: the difference is what is mended."""
    rows = await tx.db.fetch(
        "SELECT queue, status, sum(kept)::bigint, sum(present)::bigint FROM ("
        "SELECT queue, status, n AS kept, 0 AS present FROM mainstay.tallies UNION ALL "
        "SELECT queue, status, 0, count(*) FROM mainstay.jobs WHERE parent IS NULL GROUP BY queue, status"
        ") AS counted GROUP BY queue, status HAVING sum(kept) <> sum(present) ORDER BY queue, status"
    )
    found = []
    for queue, status, was, is_now in rows:
        if repair:
            tx.tallies[queue, status] += is_now - was
        message = f"queue {queue!r} counts {was} {status} jobs but has {is_now}"
        found.append(Violation(code="tally_wrong", message=message, repaired="recounted" if repair else None))
    return found


async def _stranded_keys(tx: PostgresTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    """Blocked rows that nothing will bring back: their key has a free slot and nothing ready in their queue."""
    rows = await tx.db.fetch(
        "WITH blocked AS MATERIALIZED (SELECT concurrency_key AS key, queue, count(*) AS n FROM mainstay.jobs "
        "WHERE lane = 3 GROUP BY concurrency_key, queue) "
        "SELECT key, queue, n FROM blocked LEFT JOIN mainstay.limits USING (key) "
        "WHERE (most IS NULL OR most > (SELECT count(*) FROM mainstay.jobs WHERE concurrency_key = blocked.key "
        "AND session IS NOT NULL)) AND NOT EXISTS (SELECT 1 FROM mainstay.jobs "
        "WHERE lane = 1 AND concurrency_key = blocked.key AND jobs.queue = blocked.queue) ORDER BY key, queue"
    )
    found = []
    for key, queue, n in rows:
        if repair:
            await free_slots(tx, key)
        message = f"{n} jobs of queue {queue!r} wait for the concurrency key {key!r}, which has a free slot"
        done = "the best of them is ready again" if repair else None
        found.append(Violation(code="key_stranded", message=message, repaired=done))
    return found


async def _stray_refusals(tx: PostgresTx, _chain: Chain, *, repair: bool) -> list[Violation]:
    strays = "FROM mainstay.refusals WHERE NOT EXISTS (SELECT FROM mainstay.jobs WHERE jobs.id = refusals.job_id)"
    rows = await tx.db.fetch(f"SELECT DISTINCT job_id::text {strays}")
    if repair and rows:
        await tx.db.execute(f"DELETE {strays}")
    return [stray_refusal(job_id, repaired=repair) for (job_id,) in rows]


def _leads(given_lease_ms: int | None) -> _Look:
    """Leads that end too far ahead. `given_lease_ms`: the time, where it is not the server's."""

    async def look(tx: PostgresTx, _chain: Chain, *, repair: bool) -> list[Violation]:
        latest = f"(SELECT mainstay.clock($1) + {LONGEST_LEAD_MS})"
        where = f"WHERE until_ms > {latest}"
        rows = await tx.db.fetch(f"SELECT name, holder, until_ms FROM mainstay.leaders {where}", given_lease_ms)
        if repair and rows:
            await tx.db.execute(f"UPDATE mainstay.leaders SET until_ms = 0 {where}", given_lease_ms)
        return [bad_lead(*row, repaired=repair) for row in rows]

    return look


_LOOKS: tuple[_Look, ...] = (_stray_events, _tallies, _stranded_keys, waits.check, _stray_refusals)
