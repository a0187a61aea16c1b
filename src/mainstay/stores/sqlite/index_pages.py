"""Lists of jobs by queue, status and name, from the two indexes of jobs that no session holds.

Jobs of one status, or of one queue, status and name, are a stretch of such an index, in the order of their ids. The
stretches of a query come from the counters (queues and statuses) and from the index itself (names, one after the
other). A page merges the heads of all stretches. So it costs the same for rare and common matches, and at the first and
at the millionth row.

Held jobs are in neither index: a claim removes the entry and its end adds it again, and both together cost as much as
one index of all jobs. Held jobs are few, and all of them are read.

Names and ids are read as bytes, so that invalid text is listed, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from ...model import Job
from ..port import Page, Query
from .rows import readable_jobs
from .sql import all_rows, first_row

_IDLE = "parent IS NULL AND session IS NULL"
_NAMES = f"SELECT CAST(name AS BLOB) FROM jobs WHERE {_IDLE} AND queue = ? AND status = CAST(? AS TEXT)"
_FIRST_NAME = f"{_NAMES} ORDER BY name LIMIT 1"
_NEXT_NAME = f"{_NAMES} AND name > CAST(? AS TEXT) ORDER BY name LIMIT 1"
_NAMED = f"{_IDLE} AND queue = ? AND status = CAST(? AS TEXT) AND name = CAST(? AS TEXT)"


class Clause(NamedTuple):
    """Conditions and their values."""

    where: str
    values: Sequence[Any]


def stretches(db: apsw.Connection, query: Query, most: int) -> list[Clause] | None:
    """The stretches that match the queue, status and name of a query; None if there are more than `most`."""
    if query.queue is None and query.name is None:
        return by_status(db, query)
    found: list[Clause] = []
    for queue, status in _counted(db, query):
        if query.name is not None:
            found.append(Clause(_NAMED, (queue, status, query.name.encode())))
            continue
        row = first_row(db, _FIRST_NAME, (queue, status))
        while row is not None and len(found) <= most:
            found.append(Clause(_NAMED, (queue, status, row[0])))
            row = first_row(db, _NEXT_NAME, (queue, status, row[0]))
    return found if len(found) <= most else None


def by_status(db: apsw.Connection, query: Query) -> list[Clause]:
    """The stretches of the statuses of a query, or of all statuses."""
    if query.status is None:
        return [Clause(f"{_IDLE} AND status = CAST(? AS TEXT)", (each,)) for each in _statuses(db)]
    return [Clause(f"{_IDLE} AND status = ?", (each,)) for each in dict.fromkeys(query.status)]


def _statuses(db: apsw.Connection, where: str = _IDLE, values: tuple[Any, ...] = ()) -> list[bytes]:
    """The statuses of all rows, by one look into the index for each. The counters do not have a damaged status, and its
    row must be listed all the same."""
    found: list[bytes] = []
    look = f"SELECT CAST(status AS BLOB) FROM jobs WHERE {where}"
    row = first_row(db, f"{look} ORDER BY status LIMIT 1", values)
    while row is not None:
        found.append(row[0])
        row = first_row(db, f"{look} AND status > CAST(? AS TEXT) ORDER BY status LIMIT 1", (*values, row[0]))
    return found


def page_of(
    db: apsw.Connection, parts: Sequence[Clause], matching: Clause, bounds: Clause, limit: int, query: Query
) -> Page:
    """The first jobs of all these stretches, and of the held jobs that match, within the bounds of the id."""
    way = "ASC" if query.oldest_first else "DESC"
    rows = held_ids(db, matching, bounds)
    for where, values in parts:
        tail = f"WHERE {where}{bounds.where} ORDER BY id {way} LIMIT ?"
        rows += _ids(db, tail, (*values, *bounds.values, limit + 1))
    picked = first_of(rows, limit + 1, oldest_first=query.oldest_first)
    jobs = by_rowid(db, picked[:limit], value_bytes=query.value_bytes)
    return Page(jobs, jobs[-1].id if len(picked) > limit else None)


def held_ids(db: apsw.Connection, matching: Clause, bounds: Clause) -> list[tuple[bytes, int]]:
    """Ids and row ids of the held jobs that match, in no order."""
    # with any other index it would walk all jobs of a status
    held = "INDEXED BY jobs_held WHERE session IS NOT NULL AND parent IS NULL"
    tail = f"{held} AND {matching.where or '1'}{bounds.where}"
    return _ids(db, tail, (*matching.values, *bounds.values))


def first_of(rows: list[tuple[bytes, int]], n: int, *, oldest_first: bool) -> list[tuple[bytes, int]]:
    """The first n in the order of their ids."""
    return heapq.nsmallest(n, rows) if oldest_first else heapq.nlargest(n, rows)


def by_rowid(db: apsw.Connection, rows: Sequence[tuple[bytes, int]], *, value_bytes: int | None = None) -> list[Job]:
    """Jobs in the given order: in a cross join, SQLite has the left table in the outer loop."""
    tail = "FROM (SELECT value AS wanted FROM json_each(?)) CROSS JOIN jobs ON jobs.rowid = wanted"
    return readable_jobs(db, tail, (str([rowid for _, rowid in rows]),), value_bytes=value_bytes)


def _counted(db: apsw.Connection, query: Query) -> list[tuple[str, bytes]]:
    """The queues and statuses that have jobs, or had some."""
    if query.queue is None:
        pairs = all_rows(db, "SELECT queue, CAST(status AS BLOB) FROM tallies")
    else:
        pairs = [(query.queue, each) for each in _statuses(db, f"{_IDLE} AND queue = ?", (query.queue,))]
    wanted = None if query.status is None else {each.encode() for each in query.status}
    return [(queue, status) for queue, status in pairs if wanted is None or status in wanted]


def _ids(db: apsw.Connection, tail: str, values: tuple[Any, ...]) -> list[tuple[bytes, int]]:
    return [(row[0], row[1]) for row in all_rows(db, f"SELECT CAST(id AS BLOB), rowid FROM jobs {tail}", values)]
