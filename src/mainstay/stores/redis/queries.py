"""Lists and statistics, by indexes; never by walking the keys.

Every list is a sorted set in order of id, so a page costs the same at the first and at the millionth row. Several
statuses are merged from their heads, all read in one script. Filters without an index search a window of bounded
length: such a page may be short, with a cursor to continue from.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

import msgspec

from ...errors import InvalidInput
from ...lifecycle import JOB, UNIT
from ...model import Job, Leadership, check_id, driver_ids, first_id_at
from ..bounds import LEADER, LONGEST_LEAD_MS, RATE_MINUTES, SUBMITTED, WINDOW
from ..omitted_values import shortened
from ..port import Page, Query, QueueStats, RefusedWrite, Stats
from ..query_filter import query_matches
from ..rates import per_minute
from .base import RedisBase

_FETCH = 500
#: the window of a filter by kind, which may match a few jobs among millions: each row is sent and read here
_KIND_WINDOW = 2_000
#: a job with units is rarely claimed more often; then its units are counted in two calls
_USUAL_CLAIMS = 8
_decode_refusal = msgspec.msgpack.Decoder(tuple[str, int, str, str, int]).decode


async def find(base: RedisBase, query: Query, cursor: str | None, limit: int) -> Page:
    if limit < 1:
        raise InvalidInput("limit", "a page has at least one row")
    if cursor is not None:
        check_id(cursor, field="cursor")
    sources = await _sources(base, query)
    found: list[Job] = []
    looked = 0
    size = limit + 1 if _is_plain(query) else max(limit + 1, _FETCH)
    while True:
        ids = await _ids(base, sources, query, cursor, size)
        likely = ids if query.queue is None else await _in_queue(base, ids, query.queue)
        for job in await base.jobs(likely):
            if job is not None and query_matches(job, query):
                if len(found) == limit:
                    return Page(found, found[-1].id)
                found.append(shortened(job, query.value_bytes))
        cursor = ids[-1] if ids else cursor
        looked += len(ids)
        if len(ids) < size:
            return Page(found, None)
        if looked >= (WINDOW if query.kind is None else _KIND_WINDOW):
            return Page(found, cursor)


async def stats(base: RedisBase, findings: tuple[str, ...]) -> Stats:
    counted, oldest, moves, sessions, aside, now_ms, counted_from, first_job, held, lined = await base.scripts.run(
        "queries", ["stats", RATE_MINUTES, list(JOB.states), LONGEST_LEAD_MS]
    )
    counts: dict[str, dict[str, int]] = {}
    for field, n in zip(counted[::2], counted[1::2], strict=True):
        queue, _, status = field.decode(errors="replace").rpartition("\0")
        counts.setdefault(queue, {})[status] = int(n)
    waits_since = {queue.decode(): int(due_ms) for queue, due_ms in oldest}
    entered: Counter[str] = Counter()
    for minute in moves:
        for status, n in zip(minute[::2], minute[1::2], strict=True):
            entered[status.decode()] += int(n)
    rates = per_minute(
        entered,
        now_ms=int(now_ms),
        first_counted=None if counted_from == b"" else int(counted_from),
        oldest_job=first_job.decode() or None,
    )
    submitted = rates.pop(SUBMITTED, 0.0)
    routed: dict[str, dict[str, int]] = {}
    for place, n in sorted(lined):
        queue, _, route = place.decode(errors="replace").partition("\0")
        if n:
            routed.setdefault(queue, {})[route] = n
    leads: dict[str, Leadership] = {}
    for name, holder, epoch, until_ms in sorted(held):
        leads[name.decode()] = Leadership(
            name=name.decode(), holder=holder.decode(), epoch=int(epoch), until_ms=int(until_ms)
        )
    return Stats(
        at_ms=int(now_ms),
        queues={
            queue: QueueStats(counts=dict(sorted(counts[queue].items())), oldest_ready_ms=waits_since.get(queue))
            for queue in sorted(counts)
        },
        rates=rates,
        submitted=submitted,
        sessions=sessions,
        aside=aside,
        findings=findings,
        leader=None if LEADER not in leads else leads[LEADER].holder,
        leads=leads,
        routed=routed,
    )


async def due(base: RedisBase, queues: Sequence[str]) -> int | None:
    [at_ms] = await base.scripts.run("queries", ["due", list(queues)])
    return int(at_ms) if at_ms else None


async def unit_counts(base: RedisBase, parent: str) -> dict[str, int]:
    known = _USUAL_CLAIMS
    while True:
        args = ["unit_counts", parent, list(UNIT.states), driver_ids(parent, known)]
        token, *counts = await base.scripts.run("queries", args)
        if token <= known:
            return {status: n for status, n in zip(UNIT.states, counts, strict=True) if n}
        known = token


async def refusals(base: RedisBase, job_id: str) -> list[RefusedWrite]:
    stored = await base.call("HVALS", f"refusals:{job_id}")
    return sorted((RefusedWrite(*_decode_refusal(each)) for each in stored), key=lambda write: write.token)


async def _sources(base: RedisBase, query: Query) -> list[str] | list[list[str]]:
    """Names of the sorted sets that together cover the query; for a session, the ids it holds, in order."""
    if query.parent is not None and query.status is not None:
        return [f"units:{query.parent}:{status}" for status in dict.fromkeys(query.status)]
    if query.parent is not None:
        return [f"units:{query.parent}"]
    if query.session is not None:
        held = await base.call("SMEMBERS", f"held:{query.session}")
        return [sorted(each.decode() for each in held)]
    if query.group is not None:
        return [f"group:{query.group}"]
    if query.key is not None:
        return [f"key:{query.key}"]
    if query.tag is not None:
        return [f"tag:{query.tag}"]
    statuses = query.status
    if statuses is None:
        fields = await base.call("HKEYS", "tallies")
        counted = {field.decode(errors="replace").rpartition("\0")[2] for field in fields}
        statuses = tuple(sorted({*JOB.states, *counted}))
    return [f"status:{status}" for status in dict.fromkeys(statuses)]


def _is_plain(query: Query) -> bool:
    """Whether the lists and the bounds of the ids are enough."""
    named = {"status", "oldest_first", "created_from_ms", "created_before_ms", "value_bytes"}
    return all(name in named or getattr(query, name) is None for name in query.__struct_fields__)


async def _ids(
    base: RedisBase, sources: list[str] | list[list[str]], query: Query, cursor: str | None, n: int
) -> list[str]:
    """The next n ids of all the sources, in order."""
    low, high = _bounds(query, cursor)
    lists = []
    names = [name for name in sources if isinstance(name, str)]
    if names:
        replies = await base.scripts.run("queries", ["ids", names, low, high, not query.oldest_first, n])
        lists = [[each.decode() for each in ids] for ids in replies]
    for held in sources:
        if isinstance(held, list):
            within = [job_id for job_id in held if _inside(job_id, low, high)]
            lists.append(within if query.oldest_first else within[::-1])
    merged = heapq.merge(*lists, reverse=not query.oldest_first)
    return list(dict.fromkeys(merged))[:n]


async def _in_queue(base: RedisBase, ids: Sequence[str], queue: str) -> list[str]:
    """Filtered on the server: the other jobs are not sent and decoded."""
    return [each.decode() for each in await base.scripts.run("queries", ["in_queue", list(ids), queue])]


def _bounds(query: Query, cursor: str | None) -> tuple[str, str]:
    """The range of ids, as Redis writes it: "[" includes an end, "(" does not."""
    low, high = "-", "+"
    if query.created_from_ms is not None:
        low = f"[{first_id_at(query.created_from_ms)}"
    if query.created_before_ms is not None:
        high = f"({first_id_at(query.created_before_ms)}"
    if cursor is None:
        return low, high
    if query.oldest_first:
        return (f"({cursor}" if low == "-" or cursor >= low[1:] else low), high
    return low, (f"({cursor}" if high == "+" or cursor <= high[1:] else high)


def _inside(job_id: str, low: str, high: str) -> bool:
    above = low == "-" or job_id > low[1:] or (low[0] == "[" and job_id == low[1:])
    return above and (high == "+" or job_id < high[1:])
