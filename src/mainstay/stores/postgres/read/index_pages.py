"""Lists by queue, status and name, from the index of all three and the id.

Jobs of one queue, status and name are a stretch of the index, in the order of their ids. The stretches of a query come
from the counters (queues and statuses) and from the index itself (names, one after the other). A page merges the heads
of all stretches. So it costs the same for rare and common matches, and at the first and at the millionth row. Held jobs
are not in the index, so that a claim adds no entry; they are few, and all of them are read.

Columns are compared one by one, not as a row (see `read.queries`): a scan with a row as its end continues until the
first column changes, which is the end of the queue. The queue is compared with an array of one value. From that the
planner does not infer that an order by queue is redundant, so only this index has the requested order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...port import Query
from ..connection.pool import Db
from ..rows.codec import job_columns

#: queues, statuses, names
Stretches = tuple[list[str], list[str], list[str]]

_IDLE = "parent IS NULL AND session IS NULL"

_PAIRS = """
SELECT DISTINCT queue, status FROM mainstay.tallies
WHERE ($1::text IS NULL OR queue = $1) AND ($2::text[] IS NULL OR status = ANY ($2))
"""

#: $3: the most to return
_STRETCHES = f"""
WITH RECURSIVE pairs AS ({_PAIRS}),
named (queue, status, name) AS (
    SELECT pairs.queue, pairs.status, first.name FROM pairs CROSS JOIN LATERAL (
        SELECT name FROM mainstay.jobs WHERE {_IDLE} AND jobs.queue = ANY (ARRAY[pairs.queue])
        AND jobs.status = pairs.status ORDER BY jobs.queue, jobs.name LIMIT 1
    ) AS first
    UNION ALL
    SELECT named.queue, named.status, following.name FROM named CROSS JOIN LATERAL (
        SELECT name FROM mainstay.jobs WHERE {_IDLE} AND jobs.queue = ANY (ARRAY[named.queue])
        AND jobs.status = named.status AND jobs.name > named.name ORDER BY jobs.queue, jobs.name LIMIT 1
    ) AS following
)
SELECT queue, status, name FROM named LIMIT $3
"""


async def rows_of(
    db: Db, query: Query, bounds: tuple[tuple[str, str], tuple[str, str]], limit: int, *, most: int
) -> list[Any] | None:
    """The first jobs that match, one more than asked for, within bounds of the id, each with its operator. None if they
    have more than `most` stretches. Inside a transaction."""
    found = await _stretches(db, query, most)
    if found is None:
        return None
    heads = [row[0] for row in await db.fetch(_heads(query, bounds, limit), *found, *(at for _, at in bounds))]
    status = None if query.status is None else list(query.status)
    return await db.fetch(
        _page(query, bounds, limit), heads, *(at for _, at in bounds), query.queue, status, query.name
    )


async def _stretches(db: Db, query: Query, most: int) -> Stretches | None:
    """The stretches that match the queue, statuses and name of a query; None if there are more than `most`."""
    status = None if query.status is None else list(query.status)
    if query.name is None:
        rows = await db.fetch(_STRETCHES, query.queue, status, most + 1)
    else:
        rows = [(*row, query.name) for row in await db.fetch(_PAIRS, query.queue, status)]
    if len(rows) > most:
        return None
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _heads(query: Query, bounds: Sequence[tuple[str, str]], limit: int) -> str:
    """The statement for the first ids of stretches ($1 to $3), within bounds ($4, $5)."""
    way = "ASC" if query.oldest_first else "DESC"
    (low, _), (high, _) = bounds
    return f"""
SELECT head.id::text FROM unnest($1::text[], $2::text[], $3::text[]) AS stretch (queue, status, name)
CROSS JOIN LATERAL (
    SELECT jobs.id FROM mainstay.jobs WHERE {_IDLE} AND jobs.queue = ANY (ARRAY[stretch.queue])
    AND jobs.status = stretch.status AND jobs.name = stretch.name
    AND jobs.id {low} $4::uuid AND jobs.id {high} $5::uuid
    ORDER BY jobs.queue {way}, jobs.id {way} LIMIT {limit + 1}
) AS head ORDER BY head.id {way} LIMIT {limit + 1}
"""


def _page(query: Query, bounds: Sequence[tuple[str, str]], limit: int) -> str:
    """The statement for the first of some jobs ($1) and of the held jobs, within bounds ($2, $3)."""
    way = "ASC" if query.oldest_first else "DESC"
    (low, _), (high, _) = bounds
    return f"""
SELECT {job_columns("jobs", value_bytes=query.value_bytes)}, '' AS source FROM (
    SELECT id FROM (
        SELECT unnest($1::text[]::uuid[]) AS id
        UNION ALL
        SELECT held.id FROM (
            SELECT * FROM mainstay.jobs WHERE session IS NOT NULL ORDER BY session OFFSET 0
        ) AS held WHERE parent IS NULL AND held.id {low} $2::uuid AND held.id {high} $3::uuid
        AND ($4::text IS NULL OR held.queue = $4) AND ($5::text[] IS NULL OR held.status = ANY ($5))
        AND ($6::text IS NULL OR held.name = $6)
    ) AS candidates ORDER BY id {way} LIMIT {limit + 1}
) AS picked CROSS JOIN LATERAL (SELECT * FROM mainstay.jobs WHERE jobs.id = picked.id OFFSET 0) AS jobs
ORDER BY picked.id {way}
"""
