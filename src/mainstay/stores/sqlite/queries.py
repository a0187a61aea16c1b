"""Lists and statistics, on a read connection.

A list is in the order of ids, with a keyset: each status (or queue, status and name) is read from an index, and the
results are merged. So a page costs the same at the first and at the millionth row. A filter without an index is applied
to a window of bounded length: such a page may be short, with a cursor to continue from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from ...clock import Clock
from ...model import PLACE_MS, Job, Leadership, driver_ids, first_id_at, route_of
from ..boot import boot_id
from ..bounds import LEADER, LONGEST_LEAD_MS, MOST_STRETCHES, SUBMITTED, WINDOW
from ..pages import check_page, merged_page
from ..port import Page, Query, QueueStats, RefusedWrite, Stats
from ..query_filter import is_listed
from ..rates import first_rate_minute, per_minute
from .index_pages import Clause, by_rowid, by_status, first_of, held_ids, page_of, stretches
from .rows import readable_jobs
from .sql import all_rows, first_row, marks, value

#: the most stretches that one page filters row by row, each up to the length of a window
_MOST_WALKED = 12
_CLAIMS = "SELECT token FROM jobs WHERE id = ?"


def find(db: apsw.Connection, query: Query, cursor: str | None, limit: int) -> Page:
    check_page(cursor, limit)
    if query.status == ():
        return Page([], None)
    bounds = _bounds("id", query, cursor)
    if is_listed(query) and (parts := stretches(db, query, MOST_STRETCHES)) is not None:
        return page_of(db, parts, _filters(query, frozenset()), bounds, limit, query)
    sources, served = _sources(db, query)
    rest = _filters(query, served)
    found: list[Job] = []
    stops: list[str] = []
    for source in sources:
        jobs, stop = _window(db, source, rest, query, cursor, limit)
        found.extend(jobs)
        if stop is not None:
            stops.append(stop)
    if "status" in served and query.parent is None:
        held = held_ids(db, _filters(query, frozenset()), bounds)
        first = first_of(held, limit + 1, oldest_first=query.oldest_first)
        found.extend(by_rowid(db, first, value_bytes=query.value_bytes))
    return merged_page(found, stops, query, limit)


def stats(db: apsw.Connection, clock: Clock, findings: tuple[str, ...]) -> Stats:
    counts: dict[str, dict[str, int]] = {}
    for queue, status, n in all_rows(db, "SELECT queue, status, n FROM tallies WHERE n != 0 ORDER BY queue, status"):
        counts.setdefault(queue, {})[status] = n
    oldest = {}
    for queue in counts:
        oldest[queue] = value(db, "SELECT min(due_ms) FROM jobs WHERE lane = 1 AND queue = ?", (queue,))
    now_ms = clock.now_ms()
    since = first_rate_minute(now_ms)
    rates = per_minute(
        dict(all_rows(db, "SELECT status, sum(n) FROM flow WHERE minute >= ? GROUP BY status", (since,))),
        now_ms=now_ms,
        first_counted=value(db, "SELECT min(minute) FROM flow"),
        oldest_job=value(db, "SELECT min(id) FROM jobs"),
    )
    submitted = rates.pop(SUBMITTED, 0.0)
    leads = _leads(db, clock.lease_ms())
    return Stats(
        at_ms=now_ms,
        queues={
            queue: QueueStats(counts=by_status, oldest_ready_ms=oldest[queue]) for queue, by_status in counts.items()
        },
        rates=rates,
        submitted=submitted,
        sessions=value(db, "SELECT count(*) FROM sessions WHERE dead = 0 AND (standing OR boot = ?)", (boot_id(),)),
        aside=value(db, "SELECT count(*) FROM jobs WHERE lane = 4"),
        findings=findings,
        leader=None if LEADER not in leads else leads[LEADER].holder,
        leads=leads,
        routed=_routed(db),
    )


def _leads(db: apsw.Connection, lease_ms: int) -> dict[str, Leadership]:
    rows = all_rows(
        db,
        "SELECT name, holder, epoch, until_ms FROM leaders WHERE boot = ? AND until_ms > ? AND until_ms <= ? "
        "AND holder NOT IN (SELECT id FROM sessions WHERE dead) ORDER BY name",
        (boot_id(), lease_ms, lease_ms + LONGEST_LEAD_MS),
    )
    return {
        name: Leadership(name=name, holder=holder, epoch=epoch, until_ms=until_ms)
        for name, holder, epoch, until_ms in rows
    }


def _routed(db: apsw.Connection) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    counted = "SELECT count(*) FROM jobs WHERE lane = 5 AND queue = ? AND kind = ? AND name = ?"
    for queue, kind, name in all_rows(db, "SELECT queue, kind, name FROM routes ORDER BY 1, 2, 3"):
        if n := value(db, counted, (queue, kind, name)):
            found.setdefault(queue, {})[route_of(kind, name)] = n
    return found


def due(db: apsw.Connection, queues: list[str]) -> int | None:
    paused = {row[0] for row in all_rows(db, "SELECT name FROM queues WHERE paused")}
    times = [
        # a row that waits for other jobs, or for cores, does not wait for a time
        value(db, "SELECT min(due_ms) FROM jobs WHERE lane = 2 AND queue = ? AND due_ms < ?", (queue, PLACE_MS))
        for queue in queues
        if queue not in paused
    ]
    return min((at for at in times if at is not None), default=None)


def unit_counts(db: apsw.Connection, parent: str) -> dict[str, int]:
    # one more claim: it may come between the two statements
    drivers = driver_ids(parent, 1 + sum(token for (token,) in all_rows(db, _CLAIMS, (parent,))))
    counted = f"SELECT status, count(*) FROM jobs WHERE parent = ? AND id NOT IN ({marks(drivers)}) GROUP BY status"
    return dict(all_rows(db, counted, (parent, *drivers)))


def refusals(db: apsw.Connection, job_id: str) -> list[RefusedWrite]:
    sql = "SELECT job_id, token, session, wanted, at_ms FROM refusals WHERE job_id = ? ORDER BY token"
    return [RefusedWrite(*row) for row in all_rows(db, sql, (job_id,))]


class _Source(NamedTuple):
    """Rows that an index returns in the order of their ids."""

    where: str
    values: Sequence[Any]
    tables: str = "jobs"
    id: str = "jobs.id"


def _sources(db: apsw.Connection, query: Query) -> tuple[list[_Source], frozenset[str]]:
    """Sources that together cover the query, and the fields of the query that they have applied."""
    if query.parent is not None and query.status is not None:
        units = [_Source("parent = ? AND status = ?", (query.parent, each)) for each in dict.fromkeys(query.status)]
        return units, frozenset({"parent", "status"})
    if query.parent is not None:
        return [_Source("parent = ?", (query.parent,))], frozenset({"parent"})
    if query.session is not None:
        return [_Source("session = ?", (query.session,))], frozenset({"session"})
    if query.group is not None:
        return [_Source('"group" = ? AND parent IS NULL', (query.group,))], frozenset({"group"})
    if query.key is not None:
        return [_Source("key = ? AND parent IS NULL", (query.key,))], frozenset({"key"})
    if query.tag is not None:
        joined = "tags CROSS JOIN jobs ON jobs.id = tags.job_id"
        return [_Source("tag = ? AND parent IS NULL", (query.tag,), joined, "tags.job_id")], frozenset({"tag"})
    if query.kind is not None and query.kind != "task":
        # repeated as the index declares it: SQLite does not infer it
        return [_Source("kind = ? AND kind <> 'task' AND parent IS NULL", (query.kind,))], frozenset({"kind"})
    named = query.queue is not None or query.name is not None
    if named and (parts := stretches(db, query, _MOST_WALKED)) is not None:
        return [_Source(*part) for part in parts], frozenset({"queue", "status", "name"})
    return [_Source(*part) for part in by_status(db, query)], frozenset({"status"})


def _filters(query: Query, served: frozenset[str]) -> Clause:
    """The conditions left to check row by row; empty if the sources apply all of them."""
    clauses: list[str] = []
    values: list[Any] = []

    def add(clause: str, *given: Any) -> None:
        clauses.append(clause)
        values.extend(given)

    if query.status is not None and "status" not in served:
        add(f"status IN ({', '.join('?' * len(query.status))})", *query.status)
    for name in ("group", "session", "key", "kind", "queue", "name"):
        if name not in served and (wanted := getattr(query, name)) is not None:
            add(f'"{name}" = ?', wanted)
    if query.tag is not None and "tag" not in served:
        add("id IN (SELECT job_id FROM tags WHERE tag = ?)", query.tag)
    if query.text is not None:
        parts = "id, name, reason, iif(json_valid(error), error ->> '$.message', error)"
        add(f"instr(lower(concat_ws(' ', {parts})), lower(?))", query.text)
    return Clause(" AND ".join(clauses), values)


def _window(
    db: apsw.Connection, source: _Source, rest: Clause, query: Query, cursor: str | None, limit: int
) -> tuple[list[Job], str | None]:
    """The first rows of one source that pass the filters, one more than asked for; and the id at which reading stopped,
    if there may be more."""
    bounds, bound_values = _bounds(source.id, query, cursor)
    order = "ASC" if query.oldest_first else "DESC"
    base = f"FROM {source.tables} WHERE {source.where}{bounds} ORDER BY {source.id} {order}"
    at = (*source.values, *bound_values)
    # SQLite runs the inner query as a co-routine: it stops as soon as the outer limit is reached
    inner = f"(SELECT jobs.* {base} LIMIT {WINDOW if rest.where else limit + 1})"
    tail = f"FROM {inner} WHERE {rest.where or '1'} LIMIT ?"
    jobs = readable_jobs(db, tail, (*at, *rest.values, limit + 1), value_bytes=query.value_bytes)
    if len(jobs) > limit:
        return jobs, jobs[-1].id
    if not rest.where:
        return jobs, None
    end = first_row(db, f"SELECT {source.id} {base} LIMIT 1 OFFSET {WINDOW - 1}", at)
    return jobs, None if end is None else end[0]


def _bounds(column: str, query: Query, cursor: str | None) -> Clause:
    clauses = ""
    values: list[Any] = []
    if cursor is not None:
        clauses += f" AND {column} > ?" if query.oldest_first else f" AND {column} < ?"
        values.append(cursor)
    if query.created_from_ms is not None:
        clauses += f" AND {column} >= ?"
        values.append(first_id_at(query.created_from_ms))
    if query.created_before_ms is not None:
        clauses += f" AND {column} < ?"
        values.append(first_id_at(query.created_before_ms))
    return Clause(clauses, values)
