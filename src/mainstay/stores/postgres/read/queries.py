"""Lists and statistics.

A list is in the order of ids, with a keyset: each status is read from an index, and the results are merged. So a page
costs the same at the first and at the millionth row. Lists by queue or name have an index of their own (`index_pages`).
A filter without an index is applied to a window of bounded length: such a page may be short, with a cursor to continue
from.

Which index serves a list is decided here, not by the planner, whose statistics may be old: see `_bounds`, and the
subqueries that `OFFSET 0` fences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from ....lifecycle import Chain
from ....model import PLACE_MS, Leadership, driver_ids, first_id_at
from ...bounds import LEADER, LONGEST_LEAD_MS, MOST_STRETCHES, RATE_MINUTES, SUBMITTED, WINDOW
from ...pages import check_page, merged_page
from ...port import Page, Query, QueueStats, RefusedWrite, Stats
from ...query_filter import is_listed
from ...rates import per_minute
from ..connection.engine import PostgresEngine
from ..connection.pool import Db
from ..rows.codec import is_id, job_columns, readable_job, stored_text
from .index_pages import rows_of

#: Inside a transaction: read through indexes only.
BY_INDEX = "SET LOCAL enable_sort TO off; SET LOCAL enable_bitmapscan TO off; SET LOCAL enable_seqscan TO off"
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

#: The message of a stored error, still escaped as in JSON; the whole text if it is not JSON. PostgreSQL raises an error
#: for invalid JSON, and one damaged row must not end a search.
_MESSAGE = r"""coalesce(substring(error FROM '"message":"((?:[^"\\]|\\.)*)"'), error)"""


async def find(engine: PostgresEngine, query: Query, cursor: str | None, limit: int, chain: Chain) -> Page:
    check_page(cursor, limit)
    listing = _listing(query, cursor, limit)
    if listing is None:
        return Page([], None)
    # One session holds few rows, so any plan will do. Otherwise the planner may read and sort all jobs of a status:
    # without statistics, as after a bulk of submits, it took 75 ms for a page of 30,000 jobs.
    if not listing.ends and query.session is not None:
        return _merged(await engine.call(listing.page, *listing.values), [], query, limit, chain)

    async def look(db: Db) -> Page:
        await db.execute(BY_INDEX)
        named = query.queue is not None or query.name is not None
        if named and is_listed(query):
            found = await rows_of(db, query, _id_bounds(query, cursor), limit, most=MOST_STRETCHES)
            if found is not None:
                return _merged(found, [], query, limit, chain)
        rows = await db.fetch(listing.page, *listing.values)
        # in the snapshot of the rows: the rows behind them must not have moved
        full = [source for source, n in Counter(row["source"] for row in rows).items() if n > limit]
        ends = await db.fetch(listing.ends, *listing.end_values, full) if listing.ends else []
        return _merged(rows, [row["id"] for row in ends], query, limit, chain)

    return await engine.read(look)


async def stats(engine: PostgresEngine, findings: tuple[str, ...]) -> Stats:
    counts: dict[str, dict[str, int]] = {}
    oldest: dict[str, int] = {}
    entered: dict[str, int] = {}
    single: dict[str, int] = {}
    routed: dict[str, dict[str, int]] = {}
    oldest_job: str | None = None
    epochs: dict[str, int] = {}
    leads: dict[str, Leadership] = {}
    for what, queue, status, n in await engine.call(_STATS, engine.given_ms, engine.given_lease_ms):
        if what == "count":
            counts.setdefault(queue, {})[status] = n
        elif what == "oldest":
            oldest[queue] = n
        elif what == "entered":
            entered[status] = n
        elif what == "routed":
            routed.setdefault(queue, {})[status] = n
        elif what == "first":
            oldest_job = status
        elif what == "epoch":
            epochs[queue] = n
        elif what == "lead":
            # the row of its epoch precedes it
            leads[queue] = Leadership(name=queue, holder=status, epoch=epochs[queue], until_ms=n)
        else:
            single[what] = n
    rates = per_minute(entered, now_ms=single["now"], first_counted=single["counted"], oldest_job=oldest_job)
    submitted = rates.pop(SUBMITTED, 0.0)
    return Stats(
        at_ms=single["now"],
        queues={
            queue: QueueStats(counts=by_status, oldest_ready_ms=oldest.get(queue))
            for queue, by_status in sorted(counts.items())
        },
        rates=rates,
        submitted=submitted,
        sessions=single["sessions"],
        aside=single["aside"],
        findings=findings,
        leader=None if LEADER not in leads else leads[LEADER].holder,
        leads=leads,
        routed=routed,
    )


async def due(engine: PostgresEngine, queues: Sequence[str]) -> int | None:
    [row] = await engine.call(_DUE, [name for name in queues if _storable(name)], PLACE_MS)
    at_ms: int | None = row[0]
    return at_ms


async def refusals(engine: PostgresEngine, job_id: str) -> list[RefusedWrite]:
    if not is_id(job_id):
        return []
    sql = "SELECT job_id, token, session, wanted, at_ms FROM mainstay.refusals WHERE job_id = $1 ORDER BY token"
    return [RefusedWrite(*row) for row in await engine.call(sql, job_id)]


async def unit_counts(engine: PostgresEngine, parent: str) -> dict[str, int]:
    if not is_id(parent):
        return {}

    async def look(db: Db) -> dict[str, int]:
        await db.execute(BY_INDEX)
        # one more claim: it may come between the two statements
        token = await db.fetchval("SELECT token FROM mainstay.jobs WHERE id = $1", parent) or 0
        return dict(map(tuple, await db.fetch(_UNIT_COUNTS, parent, driver_ids(parent, token + 1))))

    return await engine.read(look)


#: In the order of the index that has all the columns; otherwise the planner has read the rows themselves.
_UNIT_COUNTS = """
SELECT status, count(*) FROM (
    SELECT status FROM mainstay.jobs WHERE parent = $1 AND parent IS NOT NULL AND id <> ALL ($2::text[]::uuid[])
    ORDER BY parent, status OFFSET 0
) AS units GROUP BY status
"""

#: One statement: one snapshot and one round trip. It sums a few rows per queue, and reads only the head of one index of
#: jobs per queue.
_STATS = f"""
WITH at AS (SELECT mainstay.clock($1) AS now_ms),
counts AS (SELECT queue, status, sum(n)::bigint AS n FROM mainstay.tallies GROUP BY queue, status)
SELECT 'now', NULL, NULL, now_ms FROM at
UNION ALL
SELECT 'count', queue, status, n FROM counts WHERE n <> 0
UNION ALL
SELECT 'oldest', queue, NULL, head.due_ms FROM (SELECT DISTINCT queue FROM counts WHERE n <> 0) AS named
CROSS JOIN LATERAL (
    SELECT due_ms FROM mainstay.jobs WHERE lane = 1 AND jobs.queue = named.queue ORDER BY due_ms LIMIT 1
) AS head
UNION ALL
SELECT 'entered', NULL, status, sum(n)::bigint FROM mainstay.flow, at
WHERE minute > at.now_ms / 60000 - {RATE_MINUTES} GROUP BY status
UNION ALL
SELECT 'counted', NULL, NULL, min(minute) FROM mainstay.flow
UNION ALL
(SELECT 'first', NULL, id::text, NULL FROM mainstay.jobs ORDER BY jobs.id LIMIT 1)
UNION ALL
SELECT 'routed', r.queue, r.route, lined.n FROM mainstay.routes r CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM mainstay.jobs j
    WHERE j.lane = 5 AND j.queue = r.queue AND j.kind = r.kind AND j.name = r.name
) AS lined WHERE lined.n > 0
UNION ALL
SELECT 'sessions', NULL, NULL, count(*) FROM mainstay.sessions WHERE NOT dead
UNION ALL
SELECT 'aside', NULL, NULL, count(*) FROM mainstay.jobs WHERE lane = 4
UNION ALL
SELECT each.what, leaders.name, holder, each.n FROM mainstay.leaders, (SELECT mainstay.clock($2) AS now_ms) AS lease
CROSS JOIN LATERAL (VALUES ('epoch', leaders.epoch), ('lead', leaders.until_ms)) AS each (what, n)
WHERE until_ms > lease.now_ms AND until_ms <= lease.now_ms + {LONGEST_LEAD_MS}
AND NOT EXISTS (SELECT FROM mainstay.sessions WHERE sessions.id = leaders.holder AND dead)
"""

#: a row that waits for other jobs does not wait for a time: $2 is the due time of such rows
_DUE = """
SELECT min(head.due_ms) FROM unnest($1::text[]) AS named (queue)
CROSS JOIN LATERAL (
    SELECT due_ms FROM mainstay.jobs WHERE lane = 2 AND jobs.queue = named.queue AND due_ms < $2
    ORDER BY due_ms LIMIT 1
) AS head
WHERE NOT EXISTS (SELECT 1 FROM mainstay.queues WHERE queues.name = named.queue AND paused)
"""


# -- what to ask --------------------------------------------------------------------------------


#: fields of a query that a row must have the same of
_EQUAL = ("group", "session", "key", "kind", "queue", "name")


class _Listing(NamedTuple):
    """The statement of a page, and a second one that finds where the windows ended, for all sources except those that
    are passed to it."""

    page: str
    values: list[Any]
    ends: str = ""
    """empty if no filter is left to check: then nothing is read beyond the page"""
    end_values: Sequence[Any] = ()


class _Source(NamedTuple):
    """Rows that an index returns: those with one value in its first column, in the order of the id in its second. With
    `labels`, one such source for each label."""

    served: str
    """the field of the query that it applies"""
    value: str
    column: str
    id: str = "id"
    rows: str = "mainstay.jobs"
    where: str = "parent IS NULL"
    labels: str = ""


class _Values:
    """Collects the arguments of a statement."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, value: Any, kind: str = "text") -> str:
        self.all.append(value)
        return f"${len(self.all)}::{kind}"


def _listing(query: Query, cursor: str | None, limit: int) -> _Listing | None:
    """None if the query cannot match any row."""
    # a search text may have a zero character: `stored_text` escapes it
    texts = (*(getattr(query, name) for name in _EQUAL), query.tag, _without_zeros(query.text))
    if not all(_storable(text) for text in (*texts, *(query.status or ())) if text is not None):
        return None
    if query.parent is not None and not is_id(query.parent):
        return None
    values = _Values()
    source = _source(query, values)
    way = "ASC" if query.oldest_first else "DESC"
    order = f"ORDER BY {source.column} {way}, {source.id} {way}"
    where = " AND ".join([source.where, *_bounds(source, query, cursor, values)])
    before_rest = len(values.all)
    rest = _filters(query, source.served, values)
    head = f"SELECT * FROM {source.rows} WHERE {where} {order} LIMIT {WINDOW if rest else limit + 1}"
    if rest:
        # the inner limit keeps the filters outside; the outer one stops reading as soon as the page is full
        head = f"SELECT * FROM ({head}) AS jobs WHERE {rest} {order} LIMIT {limit + 1}"
    each, label = (f"{source.labels} AS source CROSS JOIN LATERAL ", "label") if source.labels else ("", "''")
    columns = job_columns("jobs", value_bytes=query.value_bytes)
    page = f"SELECT {columns}, {label} AS source FROM {each}({head}) AS jobs"
    if not rest:
        return _Listing(page, values.all)
    last = f"SELECT {source.id} FROM {source.rows} WHERE {where} {order} OFFSET {WINDOW - 1} LIMIT 1"
    every = source.labels or "(SELECT '' AS label)"
    ends = (
        f"SELECT label AS source, ({last})::text AS id FROM {every} AS source WHERE label <> ALL (${before_rest + 1})"
    )
    return _Listing(page, values.all, ends, values.all[:before_rest])


def _source(query: Query, values: _Values) -> _Source:
    """Sources that together cover the query."""
    if query.parent is not None and query.status is not None:
        where = f"parent = {values(query.parent, 'uuid')} AND parent IS NOT NULL"
        return _Source("status", "source.label", "status", where=where, labels=_labels(query.status, values))
    if query.parent is not None:
        return _Source("parent", values(query.parent, "uuid"), "parent", where="parent IS NOT NULL")
    if query.session is not None:
        # one session holds few rows: all of them are read and sorted
        held = f"(SELECT * FROM mainstay.jobs WHERE session = {values(query.session)} OFFSET 0) AS held"
        return _Source("session", values(query.session), "session", rows=held, where="true")
    if query.group is not None:
        where = '"group" IS NOT NULL AND parent IS NULL'
        return _Source("group", values(query.group), '"group"', where=where)
    if query.key is not None:
        return _Source("key", values(query.key), "key", where="key IS NOT NULL AND parent IS NULL")
    if query.tag is not None:
        job = "SELECT * FROM mainstay.jobs WHERE jobs.id = tags.job_id AND parent IS NULL OFFSET 0"
        tagged = f"mainstay.tags CROSS JOIN LATERAL ({job}) AS tagged"
        return _Source("tag", values(query.tag), "tag", "job_id", rows=tagged, where="true")
    if query.kind is not None and query.kind != "task":
        # repeated as the index declares it: the planner does not infer it from an argument
        return _Source("kind", values(query.kind), "kind", where="kind <> 'task' AND parent IS NULL")
    if query.status is None:
        labels = _EVERY_STATUS
    else:
        labels = _labels(query.status, values)
    return _Source("status", "source.label", "status", labels=labels)


#: The statuses of all rows, by one look into the index for each. The counters do not have a damaged status, and its row
#: must be listed all the same.
_EVERY_STATUS = """(
WITH RECURSIVE there (label) AS (
    (SELECT status FROM mainstay.jobs WHERE parent IS NULL ORDER BY status LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.status FROM mainstay.jobs j WHERE j.parent IS NULL AND j.status > t.label ORDER BY j.status LIMIT 1
    )
    FROM there t WHERE t.label IS NOT NULL
)
SELECT label FROM there WHERE label IS NOT NULL)"""


def _labels(statuses: Sequence[str], values: _Values) -> str:
    return f"(SELECT DISTINCT unnest({values(statuses, 'text[]')}) AS label)"


def _bounds(source: _Source, query: Query, cursor: str | None, values: _Values) -> list[str]:
    """Where a source begins and ends, as pairs of value and id. For a pair the planner uses the index with both
    columns. For an equal value and an order by id it has walked all jobs by id, expecting to meet the value soon."""
    pair = f"({source.column}, {source.id})"
    return [f"{pair} {sign} ({source.value}, {values(bound, 'uuid')})" for sign, bound in _id_bounds(query, cursor)]


def _id_bounds(query: Query, cursor: str | None) -> tuple[tuple[str, str], tuple[str, str]]:
    """The lowest and the highest id, each with its operator."""
    low, high = (">=", _FIRST_ID), ("<=", _LAST_ID)
    if query.created_from_ms is not None:
        low = (">=", first_id_at(query.created_from_ms))
    if query.created_before_ms is not None:
        high = ("<", first_id_at(query.created_before_ms))
    if cursor is not None and query.oldest_first:
        low = max(low, (">", cursor), key=itemgetter(1))
    elif cursor is not None:
        high = min(high, ("<", cursor), key=itemgetter(1))
    return low, high


def _filters(query: Query, served: str, values: _Values) -> str:
    """The conditions left to check row by row; empty if the sources apply all of them."""
    clauses: list[str] = []
    if query.status is not None and served != "status":
        clauses.append(f"status = ANY ({values(query.status, 'text[]')})")
    equal = {name: getattr(query, name) for name in _EQUAL if name != served}
    clauses += [f'"{name}" = {values(wanted)}' for name, wanted in equal.items() if wanted is not None]
    if query.tag is not None and served != "tag":
        tagged = f"SELECT 1 FROM mainstay.tags WHERE tags.tag = {values(query.tag)} AND tags.job_id = jobs.id"
        clauses.append(f"EXISTS ({tagged})")
    if query.text is not None:
        plain = f"strpos(lower(concat_ws(' ', id::text, name, reason)), lower({values(stored_text(query.text))})) > 0"
        escaped = msgspec.json.encode(query.text)[1:-1].decode()
        clauses.append(f"({plain} OR strpos(lower({_MESSAGE}), lower({values(escaped)})) > 0)")
    return " AND ".join(clauses)


def _storable(text: str) -> bool:
    """Whether the server can store a text. It raises an error for a query with one that it cannot."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _without_zeros(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", "")


# -- results ------------------------------------------------------------------------------------


def _merged(rows: Sequence[Any], ends: Sequence[str | None], query: Query, limit: int, chain: Chain) -> Page:
    """The page of all sources. `ends` are the ids at which windows ended."""
    jobs = [readable_job(row, chain)[0] for row in rows]
    by_source: dict[str, list[str]] = {}
    for row, job in zip(rows, jobs, strict=True):
        by_source.setdefault(row["source"], []).append(job.id)
    stops = [ids[-1] for ids in by_source.values() if len(ids) > limit]
    stops += [end for end in ends if end is not None]
    return merged_page(jobs, stops, query, limit)
