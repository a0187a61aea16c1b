"""What must be there once and is there twice: possible only while the index that forbids it is missing or invalid.

So it is looked for only then: it takes a look at every row.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ....lifecycle import Chain, Move, apply
from ....model import Job
from ...port import Violation
from ..connection.engine import PostgresTx
from ..rows.codec import INSERT_EVENTS, JOB_COLUMNS, JOB_FIELDS, REWRITE_JOB, event_arrays, job_values, readable_job


async def check(tx: PostgresTx, unsure: Collection[str], chain: Chain, *, repair: bool) -> list[Violation]:
    """`unsure` are the names of the unique indexes that cannot be relied on."""
    found: list[Violation] = []
    if "jobs_id" in unsure:
        found += await _ids(tx, chain, repair=repair)
    if "keys_name" in unsure:
        found += await _keys(tx, repair=repair)
    if "jobs_unique" in unsure:
        found += await _uniques(tx, chain, repair=repair)
    return found


async def _ids(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Two rows with one id: the one with the longest history is the job; the others get ids of their own and are
    quarantined, so that nothing is lost."""
    found = []
    for (job_id,) in await tx.db.fetch("SELECT id::text FROM mainstay.jobs GROUP BY id HAVING count(*) > 1"):
        rows = await tx.db.fetch(
            f"SELECT {JOB_COLUMNS}, ctid::text AS place FROM mainstay.jobs WHERE id = $1 ORDER BY version DESC, ctid",
            job_id,
        )
        done = None
        if repair:
            copies = [await _set_apart(tx, row["place"], readable_job(row, chain)[0], chain) for row in rows[1:]]
            done = f"the row with the longest history was kept; the others are now {', '.join(copies)}, quarantined"
        found.append(
            Violation(code="duplicate_id", job_id=job_id, message=f"{len(rows)} rows have this id", repaired=done)
        )
    return found


async def _set_apart(tx: PostgresTx, place: str, job: Job, chain: Chain) -> str:
    page, line = place.strip("()").split(",")
    fresh = f"{job.id[:24]}{int(page):08x}{int(line):04x}"
    copy = msgspec.structs.replace(job, id=fresh, trimmed_seq=job.version, trimmed_digest=job.head, unique_key=None)
    # the copy's own history is unknown: its chain begins here
    start = msgspec.structs.replace(copy, status="pending", settled_ms=None, session=None)
    why = f"a second row had the id {job.id}; it said {job.status}"
    shelf = "cancelled" if job.is_unit else "quarantined"
    moved = apply(start, Move(to=shelf, reason=why, flag="repair"), now_ms=tx.now_ms, actor="check", chain=chain)
    await tx.db.execute(f"{REWRITE_JOB} WHERE ctid = ${len(JOB_FIELDS) + 1}::text::tid", *job_values(moved.job), place)
    await tx.db.execute(INSERT_EVENTS, *event_arrays(moved.events))
    return fresh


async def _keys(tx: PostgresTx, *, repair: bool) -> list[Violation]:
    twice = await tx.db.fetch(
        "SELECT scope, name, count(*), min(ctid)::text FROM mainstay.keys GROUP BY scope, name HAVING count(*) > 1"
    )
    found = []
    for scope, name, n, first in twice:
        done = None
        if repair:
            sql = "DELETE FROM mainstay.keys WHERE scope = $1 AND name = $2 AND ctid <> $3::text::tid"
            await tx.db.execute(sql, scope, name, first)
            done = "the first use of the key was kept"
        message = f"the idempotency key {name!r} of {scope} is stored {n} times"
        found.append(Violation(code="duplicate_key", message=message, repaired=done))
    return found


async def _uniques(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Two unsettled jobs with one unique key: the first stays. Another goes to the shelf, where a person finds it,
    unless somebody works on it: then it is left to end by itself."""
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
        message = f"unique key {job.unique_key!r} is held by job {first} as well"
        if repair and job.session is None:
            await _shelve(tx, job, message, chain)
            done = "put to quarantined"
        found.append(Violation(code="duplicate_unique", job_id=job.id, message=message, repaired=done))
    return found


async def _shelve(tx: PostgresTx, job: Job, why: str, chain: Chain) -> None:
    shelf = "cancelled" if job.is_unit else "quarantined"
    moved = apply(job, Move(to=shelf, reason=why, flag="repair"), now_ms=tx.now_ms, actor="check", chain=chain)
    await tx.db.execute(f"{REWRITE_JOB} WHERE id = ${len(JOB_FIELDS) + 1}", *job_values(moved.job), job.id)
    await tx.db.execute(INSERT_EVENTS, *event_arrays(moved.events))
    tx.wrote([(job, moved.job, moved.events)])
