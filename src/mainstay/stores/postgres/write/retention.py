"""Retention: trimming by policy and deleting by an operator, inside a transaction.

A batch is a short transaction. It locks the rows that it is about to remove and skips locked ones, so it waits for no
other transaction; and no worker waits for it, because the rows are settled. Whether a job may be removed is judged
twice: by the statement that finds it, and again once it is locked, by a statement with a snapshot of its own. In
between, a caller may have given it a unit or sent it back to the queue.

Jobs are removed from all tables in one statement. That leaves dead entries at the old end of each index, where the next
batch would begin; `Places` lets it begin where the last one ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....lifecycle import Chain, Event, tombstone
from ....model import first_id_at
from ... import change_check
from ...bounds import LONG, TICKS_KEPT_MS
from ...port import Deletion, Trimmed, TrimPolicy
from ..connection.engine import PostgresTx
from ..read.queries import BY_INDEX
from ..rows.codec import INSERT_EVENTS, SELECT_JOB, event_arrays, readable_job, stored_ids
from . import waits
from .selection import free_slots

#: how long counts for the rates are kept; they cover only minutes
_FLOW_MINUTES = 60
#: the most rows of one batch, unless a single job has more: a job is removed with all its units
_MOST_ROWS = 10_000
_FIRST_ID = "00000000-0000-0000-0000-000000000000"

#: Where unfinished walks ended: (kind of walk, status, limit) -> the last key. With another limit a walk starts again
#: from the beginning.
Places = Mapping[tuple[str, str, int], Any]


async def trim(tx: PostgresTx, policy: TrimPolicy, places: Places) -> tuple[Trimmed, Places]:
    """Remove one batch of the rows that the policy names; `places` are those of the batch before."""
    await tx.db.execute(BY_INDEX)
    batch = _Batch(tx, policy, places)
    await batch.find()
    jobs, units = await batch.lock_units()
    await _remove(tx, [*units, *jobs])
    events, shortened = await _shorten(tx, policy)
    keys = _number(await tx.db.execute(_DROP_KEYS, tx.now_ms, policy.batch))
    await tx.db.execute("DELETE FROM mainstay.flow WHERE minute < $1", tx.now_ms // 60_000 - _FLOW_MINUTES)
    await tx.db.execute(_DROP_TICKS, TICKS_KEPT_MS)
    more = batch.full or policy.batch in (shortened, keys)
    return Trimmed(len(jobs), events, keys, more), batch.places


async def delete(
    tx: PostgresTx, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None, chain: Chain
) -> list[Deletion]:
    wanted = stored_ids(dict.fromkeys(ids))
    # units first: a transaction that ends a unit locks it before its parent
    await tx.db.execute(_LOCK_UNITS, wanted)
    rows = await tx.db.fetch(f"{SELECT_JOB} WHERE id = ANY ($1::uuid[]) ORDER BY jobs.id FOR UPDATE", wanted)
    found = {job.id: job for job in (readable_job(row, chain)[0] for row in rows)}
    units: dict[str, list[Any]] = {}
    for unit in await tx.db.fetch(_LOCK_UNITS, list(found)):
        units.setdefault(unit["parent"], []).append(unit)
    answers: list[Deletion] = []
    gone: dict[str, None] = {}
    stones: list[Event] = []
    keys: set[str] = set()
    for job_id in ids:
        job = found.get(job_id)
        own = [unit for unit in units.get(job_id, ()) if unit["id"] not in gone]
        if job is None or job_id in gone:
            answers.append("missing")
            continue
        answer = change_check.deletion(job, job.session is not None or any(unit["held"] for unit in own), versions)
        if answer == "deleted":
            gone.update(dict.fromkeys([*(unit["id"] for unit in own), job_id]))
            stones.append(tombstone(job, now_ms=tx.now_ms, actor=actor, reason=reason, chain=chain))
            # a unit may have held a slot of its key
            keys.update(unit["concurrency_key"] for unit in own if unit["concurrency_key"] is not None)
            if key := change_check.freed(job, None):
                keys.add(key)
        answers.append(answer)
    if gone:
        await _remove(tx, list(gone))
        await tx.db.execute(INSERT_EVENTS, *event_arrays(stones))
        # rows are locked before keys, everywhere
        await waits.follow(tx, [(each, change_check.GONE) for each in gone], chain)
        for key in sorted(keys):
            await free_slots(tx, key)
    return answers


# -- selection ----------------------------------------------------------------------------------

_CLOSED = "NOT EXISTS (SELECT 1 FROM mainstay.jobs AS u WHERE u.parent = jobs.id AND u.settled_ms IS NULL)"
_LOCKED = "FOR UPDATE OF jobs SKIP LOCKED"
#: A job settles after its creation, so the jobs of a status are walked by id, up to the first id made after the limit.
#: For why status and id are compared as a pair, see `read.queries`.
_OUTLIVED = f"""
SELECT id::text FROM mainstay.jobs WHERE parent IS NULL AND (status, id) > ($1, $2) AND (status, id) < ($1, $3)
AND settled_ms < $4 AND expires_ms IS NULL AND {_CLOSED} ORDER BY status, jobs.id LIMIT $5 {_LOCKED}
"""
_EXPIRED = f"""
SELECT id::text, status, expires_ms FROM mainstay.jobs WHERE settled_ms IS NOT NULL AND expires_ms IS NOT NULL
AND expires_ms >= $1 AND expires_ms <= $2 AND parent IS NULL AND {_CLOSED} ORDER BY expires_ms LIMIT $3 {_LOCKED}
"""
_SURPLUS = f"""
SELECT id::text FROM mainstay.jobs WHERE parent IS NULL AND (status, id) > ($1, $2) AND status <= $1
AND settled_ms IS NOT NULL AND expires_ms IS NULL AND id <> ALL ($3::uuid[]) AND {_CLOSED}
ORDER BY status, jobs.id LIMIT $4 {_LOCKED}
"""
_COUNT = "SELECT coalesce(sum(n), 0)::bigint FROM mainstay.tallies WHERE status = $1"
_COUNT_UNITS = """
SELECT parent::text, count(*), count(*) FILTER (WHERE settled_ms IS NULL) AS open FROM mainstay.jobs
WHERE parent = ANY ($1::uuid[]) GROUP BY parent
"""
_LOCK_SETTLED_UNITS = """
SELECT id::text, parent::text FROM mainstay.jobs WHERE parent = ANY ($1::uuid[]) AND settled_ms IS NOT NULL
FOR UPDATE SKIP LOCKED
"""
_LOCK_UNITS = """
SELECT id::text, parent::text, session IS NOT NULL AS held, concurrency_key FROM mainstay.jobs
WHERE parent = ANY ($1::uuid[]) ORDER BY jobs.id FOR UPDATE
"""


class _Batch:
    """The jobs of one batch, locked; at most as many as the policy allows."""

    def __init__(self, tx: PostgresTx, policy: TrimPolicy, places: Places) -> None:
        self._tx = tx
        self._policy = policy
        self._before = places
        self._found: dict[str, str] = {}
        """id -> status"""
        self.places: dict[tuple[str, str, int], Any] = {}
        self.full = False

    async def find(self) -> None:
        for status, before_ms in self._policy.settled_before_ms.items():
            walk = ("outlived", status, before_ms)
            values = (status, self._before.get(walk, _FIRST_ID), first_id_at(before_ms), before_ms)
            rows = await self._fetch(_OUTLIVED, *values)
            self._add(walk, [(row["id"], status) for row in rows], [row["id"] for row in rows])
        walk = ("expired", "", 0)
        rows = await self._fetch(_EXPIRED, self._before.get(walk, 0), self._tx.now_ms)
        self._add(walk, [(row["id"], row["status"]) for row in rows], [row["expires_ms"] for row in rows])
        for status, most in self._policy.keep_count.items():
            await self._find_surplus(status, most)
        self.full = self._room() == 0

    async def lock_units(self) -> tuple[list[str], list[str]]:
        """The jobs that may still be removed now that they are locked, and all their units."""
        jobs = list(self._found)
        counts = {row["parent"]: row for row in await self._tx.db.fetch(_COUNT_UNITS, jobs)}
        if not counts:
            return jobs, []
        jobs = self._not_too_many([job for job in jobs if job not in counts or not counts[job]["open"]], counts)
        units: dict[str, list[str]] = {}
        for row in await self._tx.db.fetch(_LOCK_SETTLED_UNITS, jobs):
            units.setdefault(row["parent"], []).append(row["id"])
        # a unit that could not be locked is being moved: its job stays for a later batch
        jobs = [job for job in jobs if job not in counts or len(units.get(job, ())) == counts[job]["count"]]
        return jobs, [unit for job in jobs for unit in units.get(job, ())]

    def _not_too_many(self, jobs: Sequence[str], counts: Mapping[str, Any]) -> list[str]:
        taken: list[str] = []
        rows = 0
        for job in jobs:
            rows += 1 + (counts[job]["count"] if job in counts else 0)
            if taken and rows > _MOST_ROWS:
                # without a place, the next walk comes back for the others
                self.full, self.places = True, {}
                break
            taken.append(job)
        return taken

    async def _find_surplus(self, status: str, most: int) -> None:
        count = await self._tx.db.fetchval(_COUNT, status)
        going = sum(1 for each in self._found.values() if each == status)
        excess = count - going - most
        if excess <= 0:
            return
        walk = ("surplus", status, most)
        values = (status, self._before.get(walk, _FIRST_ID), list(self._found))
        rows = await self._fetch(_SURPLUS, *values, most=excess)
        self._add(walk, [(row["id"], status) for row in rows], [row["id"] for row in rows])

    async def _fetch(self, sql: str, *values: Any, most: int | None = None) -> list[Any]:
        room = self._room() if most is None else min(self._room(), most)
        return await self._tx.db.fetch(sql, *values, room) if room else []

    def _add(self, walk: tuple[str, str, int], found: Iterable[tuple[str, str]], marks: Sequence[Any]) -> None:
        self._found.update(found)
        if self._room() == 0:
            last = marks[-1] if marks else self._before.get(walk)
            if last is not None:
                self.places[walk] = last

    def _room(self) -> int:
        return self._policy.batch - len(self._found)


# -- removal ------------------------------------------------------------------------------------

#: Jobs with their events, tags, refusals and waits. Keys stay.
_REMOVE = """
WITH gone AS (DELETE FROM mainstay.jobs WHERE id = ANY ($1::uuid[]) RETURNING parent, queue, status),
events_gone AS (DELETE FROM mainstay.events WHERE job_id = ANY ($1::uuid[])),
refusals_gone AS (DELETE FROM mainstay.refusals WHERE job_id = ANY ($1::uuid[])),
tags_gone AS (DELETE FROM mainstay.tags WHERE job_id = ANY ($1::uuid[])),
waits_gone AS (DELETE FROM mainstay.waits WHERE job_id = ANY ($1::uuid[]))
SELECT queue, status, count(*) FROM gone WHERE parent IS NULL GROUP BY queue, status
"""
_DROP_KEYS = """
DELETE FROM mainstay.keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM mainstay.keys WHERE until_ms <= $1 ORDER BY until_ms LIMIT $2 FOR UPDATE SKIP LOCKED
))
"""
#: ticks before the last one are judged by it
_DROP_TICKS = """
DELETE FROM mainstay.ticks USING mainstay.schedules
WHERE schedules.name = ticks.schedule AND ticks.at_ms < schedules.last_tick_ms - $1::bigint
"""


async def _remove(tx: PostgresTx, ids: Sequence[str]) -> None:
    if ids:
        for queue, status, n in await tx.db.fetch(_REMOVE, ids):
            tx.count(queue, status, None, n)


async def _shorten(tx: PostgresTx, policy: TrimPolicy) -> tuple[int, int]:
    """Trim long histories; returns the number of events and of jobs."""
    if policy.keep_events is None:
        return 0, 0
    # the newest event always stays: the row is checked against it
    row = await tx.db.fetchrow(_shortening(max(policy.keep_events, 1)), policy.batch)
    return row["events"], row["jobs"]


def _shortening(keep: int) -> str:
    """Skips jobs without the event that would become the anchor: the check reports such a broken history. A row may
    change before it is locked; then one event more is kept."""
    indexed = f"version - trimmed_seq > {LONG} AND" if keep >= LONG else ""
    return f"""
WITH long AS MATERIALIZED (
    SELECT jobs.id, anchor.seq, anchor.digest FROM mainstay.jobs CROSS JOIN LATERAL (
        SELECT seq, digest FROM mainstay.events WHERE events.job_id = jobs.id AND seq = jobs.version - {keep} OFFSET 0
    ) AS anchor
    WHERE {indexed} version - trimmed_seq > {keep} ORDER BY version - trimmed_seq DESC LIMIT $1 {_LOCKED}
), anchored AS (
    UPDATE mainstay.jobs SET trimmed_seq = long.seq, trimmed_digest = long.digest FROM long
    WHERE jobs.id = long.id AND jobs.trimmed_seq < long.seq
), gone AS (
    DELETE FROM mainstay.events USING long WHERE events.job_id = long.id AND events.seq <= long.seq RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS events, (SELECT count(*) FROM long) AS jobs
"""


def _number(tag: str) -> int:
    """The number of rows in a command tag."""
    return int(tag.rpartition(" ")[2])
