"""Duplicates of what must be unique. They are possible only while the index that forbids them is missing or invalid.

So they are looked for only then: it takes a look at every row.
"""

from __future__ import annotations

from collections.abc import Collection

from ....lifecycle import Chain, Moved
from ....model import Job
from ...port import Violation
from ...row_codec import JOB_FIELDS
from ...violations import duplicate_id, duplicate_key, second_row_move, shelved
from ..connection.engine import PostgresTx
from ..rows.codec import INSERT_EVENTS, JOB_COLUMNS, REWRITE_JOB, event_arrays, job_values, readable_job

_BY_PLACE = f"{REWRITE_JOB} WHERE ctid = ${len(JOB_FIELDS) + 1}::text::tid"
_BY_ID = f"{REWRITE_JOB} WHERE id = ${len(JOB_FIELDS) + 1}"


async def check(tx: PostgresTx, unsure: Collection[str], chain: Chain, *, repair: bool) -> list[Violation]:
    """`unsure` are the names of the unique indexes that are missing or invalid."""
    found: list[Violation] = []
    if "jobs_id" in unsure:
        found += await _ids(tx, chain, repair=repair)
    if "keys_name" in unsure:
        found += await _keys(tx, repair=repair)
    if "jobs_unique" in unsure:
        found += await _uniques(tx, chain, repair=repair)
    return found


async def _ids(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Several rows with one id: the one with the longest history is the job. The others get ids of their own and are
    quarantined, so that nothing is lost."""
    found = []
    for (job_id,) in await tx.db.fetch("SELECT id::text FROM mainstay.jobs GROUP BY id HAVING count(*) > 1"):
        rows = await tx.db.fetch(
            f"SELECT {JOB_COLUMNS}, ctid::text AS place FROM mainstay.jobs WHERE id = $1 ORDER BY version DESC, ctid",
            job_id,
        )
        others = rows[1:] if repair else []
        new_ids = [await _set_apart(tx, row["place"], readable_job(row, chain)[0], chain) for row in others]
        found.append(duplicate_id(job_id, len(rows), new_ids))
    return found


async def _set_apart(tx: PostgresTx, place: str, job: Job, chain: Chain) -> str:
    page, line = place.strip("()").split(",")
    new_id = f"{job.id[:24]}{int(page):08x}{int(line):04x}"
    await _rewrite(tx, _BY_PLACE, place, second_row_move(job, new_id, now_ms=tx.now_ms, chain=chain))
    return new_id


async def _rewrite(tx: PostgresTx, sql: str, key: str, moved: Moved) -> None:
    await tx.db.execute(sql, *job_values(moved.job), key)
    await tx.db.execute(INSERT_EVENTS, *event_arrays(moved.events))


async def _keys(tx: PostgresTx, *, repair: bool) -> list[Violation]:
    rows = await tx.db.fetch(
        "SELECT scope, name, count(*), min(ctid)::text FROM mainstay.keys GROUP BY scope, name HAVING count(*) > 1"
    )
    for scope, name, _, first in rows if repair else ():
        sql = "DELETE FROM mainstay.keys WHERE scope = $1 AND name = $2 AND ctid <> $3::text::tid"
        await tx.db.execute(sql, scope, name, first)
    return [duplicate_key(scope, name, n, repaired=repair) for scope, name, n, _ in rows]


async def _uniques(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Unsettled jobs that share a unique key: the first stays, and the others are quarantined for an operator. One that
    a session holds is left to end by itself."""
    found = []
    rows = await tx.db.fetch(
        f"SELECT {JOB_COLUMNS} FROM mainstay.jobs WHERE settled_ms IS NULL AND unique_key IN ("
        "SELECT unique_key FROM mainstay.jobs WHERE unique_key IS NOT NULL AND settled_ms IS NULL "
        "GROUP BY unique_key HAVING count(*) > 1) ORDER BY unique_key, session IS NULL, id"
    )
    holders: dict[str, str] = {}
    for job in (readable_job(row, chain)[0] for row in rows):
        assert job.unique_key is not None
        first = holders.setdefault(job.unique_key, job.id)
        if first == job.id:
            continue
        done = None
        message = f"unique key {job.unique_key!r} is also held by job {first}"
        if repair and job.session is None:
            moved = shelved(job, message, now_ms=tx.now_ms, chain=chain)
            await _rewrite(tx, _BY_ID, job.id, moved)
            tx.wrote([(job, moved.job, moved.events)])
            done = "it was quarantined"
        found.append(Violation(code="duplicate_unique", job_id=job.id, message=message, repaired=done))
    return found
