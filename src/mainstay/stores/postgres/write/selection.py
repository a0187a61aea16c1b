"""Selection: which rows are claimed, from stored columns only.

A claim is one function call (`sql/claim.sql`). Only steps that need a sealed event or a decoder are done here: due rows
are promoted first, and a damaged row is set aside.

Jobs of one concurrency key share its slots. A claim counts the held rows of the key, its own included. Rows over the
limit go to the blocked lane, and come back when a slot is freed. A transaction that counts or frees slots holds the
lock of the key.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from ....errors import InvalidTransition, SessionLost
from ....lifecycle import Chain, promote, table_of
from ....model import Job, Lane, route_of
from ...open_claim import claim_event
from ...port import MARKS_KEPT, SealedChange, Written
from ...routes import EVERYBODY, Offers
from ...row_codec import JOB_FIELDS
from ..connection.engine import PostgresEngine, PostgresTx
from ..rows.codec import JOB_COLUMNS, job_from, stored_text
from .statements import write_moves

log = logging.getLogger("mainstay.stores.postgres")

_CLAIM = "SELECT * FROM mainstay.claim($1, $2, $3, $4, $5, $6)"
_CLAIM_MARKED = "SELECT * FROM mainstay.claim_marked($1, $2, $3, $4, $7, $8, $9, $5, $6)"
_DUE_BATCH = 500
#: the most rows that one statement frees
_MOST_FREED = 10_000
#: the columns after those of a job and `open`
_N, _STATE = len(JOB_FIELDS) + 1, len(JOB_FIELDS) + 2
#: the states of rows that are read: claimed now, claimed by an earlier call under the same mark, not claimable
_ROWS = ("", "held", "odd")
_order = itemgetter(JOB_FIELDS.index("rank"), JOB_FIELDS.index("due_ms"), _N)


class ClaimCall(NamedTuple):
    """How the server recognizes a claim that it has answered before."""

    nonce: str
    """of this call: sent again after a lost connection, it gets the same rows"""
    mark: str | None = None
    """of the caller, who may send the claim again at any time"""
    continues: bool = False
    """whether an earlier call under this mark found only rows whose task the session does not have"""


async def claim_jobs(
    engine: PostgresEngine,
    queues: Sequence[str],
    session: str,
    n: int,
    call: ClaimCall,
    chain: Chain,
    offers: Offers,
    *,
    observed: bool,
) -> tuple[list[Job], int]:
    """Take up to n rows for a live session; and the number of rows that it met whose task it does not have.
    `observed`: the store has an observer."""
    names = list(queues)
    rows = await _call_claim(engine, names, session, n, call, promoted=False)
    if rows and rows[0][_STATE] == "due":

        async def make_ready(tx: PostgresTx) -> None:
            await promote_due(tx, names, chain)
            await tx.db.execute("SELECT mainstay.bring_back($1, $2, $3)", names, session, n)

        await engine.transact(make_ready, lasting=False)
        rows = await _call_claim(engine, names, session, n, call, promoted=True)
    jobs: list[Job] = []
    broken: list[tuple[str, object]] = []
    odd: list[Job] = []
    woken: Counter[str] = Counter()
    for row in sorted((row for row in rows if row[_STATE] in _ROWS), key=_order):
        try:
            job = job_from(row, chain)
        except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
            broken.append((row[0], error))
            continue
        (odd if row[_STATE] == "odd" else jobs).append(job)
    for row in rows:
        if row[_STATE] == "lost":
            raise SessionLost(session)
        if row[_STATE] == "more":
            # the claim ended early; the subscriber that is woken continues from here
            woken.update(f"queue:{name}" for name in names)
    if broken or odd:
        await engine.transact(lambda tx: _clear_away(tx, broken, odd, session))
    claimed = len(jobs)
    if (tasks := offers.tasks_of(session)) is not None:
        jobs = await _without_unknown_tasks(engine, jobs, session, tasks, offers)
    written = _as_written(jobs, rows) if observed else []
    engine.committed(written, woken)
    return jobs, claimed - len(jobs)


async def _call_claim(
    engine: PostgresEngine, queues: list[str], session: str, n: int, call: ClaimCall, *, promoted: bool
) -> list[Any]:
    args = [queues, session, n, call.nonce, promoted, engine.given_ms]
    if call.mark is None:
        return await engine.call(_CLAIM, *args, lasting=False)
    return await engine.call(_CLAIM_MARKED, *args, call.mark, call.continues, MARKS_KEPT, lasting=False)


def _as_written(jobs: Sequence[Job], rows: Sequence[Any]) -> list[Written]:
    """The rows that were claimed now, for the observer. The row before its claim is derived from the claimed row."""
    heads = {row[0]: row[JOB_FIELDS.index("head")] for row in rows if row[_STATE] == ""}
    written: list[Written] = []
    for job in jobs:
        if job.id not in heads:
            continue
        before = msgspec.structs.replace(
            job,
            status="pending",
            version=job.version - 1,
            token=job.token - 1,
            session=None,
            claimed_ms=None,
            head=heads[job.id],
            lane=Lane.READY,
        )
        written.append((before, job, (claim_event(job),)))
    return written


async def promote_due(tx: PostgresTx, queues: Sequence[str], chain: Chain) -> None:
    """Make due rows ready. A job leaves its waiting state with an event; a unit waits in its claimable state, and only
    changes lanes."""
    rows = await tx.db.fetch(
        f"SELECT {JOB_COLUMNS} FROM mainstay.jobs WHERE id = ANY (ARRAY("
        "SELECT d.id FROM unnest($1::text[]) q CROSS JOIN LATERAL ("
        "SELECT j.id FROM mainstay.jobs j WHERE j.lane = 2 AND j.queue = q AND j.due_ms <= $2 "
        "AND NOT EXISTS (SELECT FROM mainstay.queues s WHERE s.name = q AND s.paused) "
        "ORDER BY j.due_ms LIMIT $3) d)) AND lane + 0 = 2 ORDER BY due_ms, n FOR UPDATE SKIP LOCKED",
        list(dict.fromkeys(queues)),
        tx.now_ms,
        _DUE_BATCH,
    )
    moved: list[SealedChange] = []
    units: list[Job] = []
    for row in rows:
        try:
            job = job_from(row, chain)
        except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
            await _set_aside(tx, row[0], error)
            continue
        if job.is_unit:
            units.append(job)
            continue
        try:
            ready = promote(job, now_ms=tx.now_ms, chain=chain)
        except InvalidTransition as error:
            await _set_aside_unless_newer(tx, job, error)
            continue
        moved.append(SealedChange.of(job, ready))
    await write_moves(tx, moved)
    if units:
        await _set_lane(tx, [unit.id for unit in units], Lane.READY)
        await lower_heads(tx, units)
        for unit in units:
            tx.wake(f"queue:{unit.queue}")


async def lower_heads(tx: PostgresTx, ready: Sequence[Job]) -> None:
    """Make claims look as low as these rows, after a statement that does not do it itself has made them ready."""
    await tx.db.execute(
        "SELECT mainstay.lower_heads($1, $2)", [job.queue for job in ready], [job.rank for job in ready]
    )


async def free_slots(tx: PostgresTx, key: str) -> None:
    """Make blocked rows of a key ready, as many as it has free slots: the best of every queue, so that a paused queue
    cannot keep the slot from the others."""
    back = _MOST_FREED
    while back >= _MOST_FREED:  # a removed limit frees all of them
        rows = await tx.db.fetch("SELECT queue, n FROM mainstay.free_slots($1, $2)", key, _MOST_FREED)
        back = sum(n for _, n in rows)
        for queue, n in rows:
            tx.wake(f"queue:{queue}", n)


# -- routing -------------------------------------------------------------------------------------


async def _without_unknown_tasks(
    engine: PostgresEngine, jobs: list[Job], session: str, tasks: Mapping[str, object], offers: Offers
) -> list[Job]:
    """The claimed jobs whose task the session has. The others are released to the routed lane; unless a live session
    has no offer, because it would never see them there."""
    unknown = [job for job in jobs if route_of(job.kind, job.name) not in tasks]
    if not unknown:
        return jobs
    routed = await engine.transact(lambda tx: _route(tx, unknown, session))
    for job in unknown:
        if job.id in routed:
            offers.warn(job)
    return [job for job in jobs if job.id not in routed]


async def _route(tx: PostgresTx, jobs: Sequence[Job], session: str) -> set[str]:
    silent = (
        "SELECT 1 FROM mainstay.sessions s WHERE NOT s.dead "
        "AND NOT EXISTS (SELECT FROM mainstay.offers o WHERE o.session = s.id) LIMIT 1"
    )
    if await tx.db.fetchval(silent) is not None:
        return set()
    places = sorted({(job.queue, job.kind, job.name) for job in jobs})
    await tx.db.execute(
        # also written if it exists: its lock keeps a session that brings rows back from deleting it
        "INSERT INTO mainstay.routes (queue, kind, name, route) "
        "SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) "
        "ON CONFLICT (queue, kind, name) DO UPDATE SET route = excluded.route",
        [stored_text(queue) for queue, _, _ in places],
        [stored_text(kind) for _, kind, _ in places],
        [stored_text(name) for _, _, name in places],
        [stored_text(route_of(kind, name)) for _, kind, name in places],
    )
    rows = await tx.db.fetch(
        "UPDATE mainstay.jobs j SET status = 'pending', version = version - 1, token = token - 1, session = NULL, "
        f"claimed_ms = NULL, open = false, lane = {int(Lane.ROUTED)}, expires_ms = g.expires_ms "
        "FROM unnest($1::text[]::uuid[], $2::bigint[]) AS g (id, expires_ms) "
        "WHERE j.id = g.id AND j.open AND j.session = $3 RETURNING j.id::text, j.queue, j.parent, j.concurrency_key",
        [job.id for job in jobs],
        [job.options.start_by_ms if job.starts == 0 else None for job in jobs],
        session,
    )
    for _, queue, parent, _ in rows:
        tx.wake(f"queue:{queue}", EVERYBODY)
        if parent is None:
            tx.count(queue, "running", "pending")
            tx.entered["running"] -= 1
    for key in sorted({key for *_, key in rows if key is not None}):
        await free_slots(tx, key)
    return {row[0] for row in rows}


# -- rows that cannot be claimed -----------------------------------------------------------------


async def _clear_away(tx: PostgresTx, broken: Sequence[tuple[str, object]], odd: Sequence[Job], session: str) -> None:
    keys = set()
    for job_id, error in broken:
        keys.add(await _unclaim(tx, job_id, session))
        await _set_aside(tx, job_id, error)
    for key in sorted(key for key in keys if key is not None):
        await free_slots(tx, key)
    for job in odd:
        await _set_aside_unless_newer(tx, job, f"it is in the ready lane, but {job.status!r}")


async def _unclaim(tx: PostgresTx, job_id: str, session: str) -> str | None:
    """Undo a claim that was not passed on: while it is open, it is only in the row. Returns the concurrency key whose
    slot it had."""
    row = await tx.db.fetchrow(
        "UPDATE mainstay.jobs SET status = 'pending', version = version - 1, token = token - 1, session = NULL, "
        "claimed_ms = NULL, open = false WHERE id = $1::text::uuid AND open AND session = $2 "
        "RETURNING queue, parent, concurrency_key",
        job_id,
        session,
    )
    if row is None:
        return None
    if row[1] is None:
        tx.count(row[0], "running", "pending")
    key: str | None = row[2]
    return key


async def _set_aside_unless_newer(tx: PostgresTx, job: Job, error: object) -> None:
    """A status of a newer version is left alone: newer workers know what to do with it."""
    if table_of(job.parent).get(job.status) is not None:
        await _set_aside(tx, job.id, error)


async def _set_aside(tx: PostgresTx, job_id: str, why: object) -> None:
    log.error("a stored job cannot be used and was set aside job_id=%s: %s; run: mainstay check", job_id, why)
    await _set_lane(tx, [job_id], Lane.ASIDE)


async def _set_lane(tx: PostgresTx, ids: Sequence[str], lane: Lane) -> None:
    await tx.db.execute("UPDATE mainstay.jobs SET lane = $2 WHERE id = ANY ($1::text[]::uuid[])", list(ids), int(lane))


__all__ = ["ClaimCall", "claim_jobs", "free_slots", "lower_heads", "promote_due"]
