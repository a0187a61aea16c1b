"""The looks at a store that make a snapshot. None of them grows with the number of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...control import schedules
from ...control.explain import is_alive
from ...control.json_view import schedule_data
from ...control.unserved import unserved
from ...kinds import DEFAULT
from ...lifecycle import JOB
from ...model import Job, is_private
from ...stores import JobStore, Query
from ..api.job_pages import VALUE_BYTES
from ..api.masker import Masker
from ..stores import ServedStore
from .snapshot import FailureSummary, QueueSnapshot, SessionSnapshot, by_cause, held, in_order, run_of, waiting
from .store_access import without_values

#: sessions whose jobs are looked at, and the jobs of each
_SESSIONS, _HELD = 100, 20
#: jobs that are told of each
_TOLD = 5
#: failed jobs that are grouped by cause
_FAILED = 200
#: jobs at work among which batches and load tests are looked for, and those that are told
_AT_WORK, _RUNS = 200, 20
#: rows read at a time
_PAGE = 50
#: jobs of each passing state whose age is looked at
_PASSING = 50

#: where jobs stand that failed; what is skipped or cancelled was meant to be
_FAILED_STATES = tuple(name for name, state in JOB.states.items() if state.settled and not state.final)
_AT_WORK_STATES = tuple(name for name, state in JOB.states.items() if state.holds)
#: of these a job is expected to come out by itself, and soon
_PASSING_STATES = tuple(name for name in _AT_WORK_STATES if name != "running")

Found = dict[str, Any]


class SnapshotQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One look: what it asks, and how often compared to the numbers."""

    name: str
    ask: Callable[[ServedStore, Masker], Awaitable[Found]]
    every: int = 1


async def numbers(served: ServedStore, _: Masker) -> Found:
    """Counts, rates, ages, and what is paused."""
    store = served.store
    stats, settings = await store.stats(), {queue.name: queue for queue in await store.queues()}
    queues, counts = [], Counter[str]()
    for name in sorted(stats.queues.keys() | settings.keys()):
        seen, setting = stats.queues.get(name), settings.get(name)
        by_status = {} if seen is None else in_order(Counter(seen.counts))
        counts.update(by_status)
        if is_private(name):
            continue
        queues.append(
            QueueSnapshot(
                name=name,
                counts=by_status,
                waiting=waiting(by_status),
                oldest_ready_ms=None if seen is None else seen.oldest_ready_ms,
                paused=setting is not None and setting.paused,
                reason=None if setting is None else setting.reason,
                set_by="" if setting is None else setting.set_by,
                set_ms=None if setting is None else setting.set_ms,
            )
        )
    return {
        "stats_ms": stats.at_ms,
        "counts": in_order(counts),
        "rates": stats.rates,
        "submitted": stats.submitted,
        "waiting": sum(queue.waiting for queue in queues),
        "oldest_ready_ms": min((q.oldest_ready_ms for q in queues if q.oldest_ready_ms is not None), default=None),
        "queues": queues,
        "aside": stats.aside,
        "leader": stats.leader,
        "findings": stats.findings,
    }


async def sessions(served: ServedStore, masker: Masker) -> Found:
    """Who is at work, and on what."""
    store = served.store
    lease_ms = store.clock.lease_ms()
    everybody = await store.sessions()
    # the living first: however many dead there are, they must not push them off the list
    everybody.sort(key=lambda each: (not is_alive(each, lease_ms), each.worker, each.started_ms, each.id))
    found = []
    for session in everybody[:_SESSIONS]:
        page = await store.find(Query(session=session.id, value_bytes=VALUE_BYTES), limit=_HELD)
        found.append(
            SessionSnapshot(
                id=session.id,
                worker=session.worker,
                host=session.host,
                pid=session.pid,
                started_ms=session.started_ms,
                at_work=is_alive(session, lease_ms),
                dead=session.dead,
                supervisor=session.supervisor,
                draining_ms=session.draining_ms,
                draining_by=session.draining_by,
                queues=None if session.offer is None else list(session.offer.queues),
                silent_ms=max(0, lease_ms - session.beat_ms),
                holds=len(page.jobs),
                more=page.cursor is not None,
                jobs=[held(job, masker) for job in page.jobs[:_TOLD]],
            )
        )
    return {"sessions": found, "live_sessions": sum(is_alive(session, lease_ms) for session in everybody)}


async def lacking(served: ServedStore, _: Masker) -> Found:
    """Which jobs no live worker takes."""
    store = served.store
    found = unserved(await store.stats(), await store.sessions(), store.clock.lease_ms())
    return {"unserved": [each.told for each in found]}


async def failures(served: ServedStore, masker: Masker) -> Found:
    """The newest that stand failed, by cause."""
    found, more = await _some(served.store, Query(status=_FAILED_STATES), _FAILED, masker)
    return {"failures": FailureSummary(looked_at=len(found), more=more, causes=by_cause(found))}


async def plans(served: ServedStore, _: Masker) -> Found:
    """Schedules: next ticks, and what became of the last one."""
    return {"schedules": [schedule_data(view) for view in await schedules.describe(served.control)]}


async def runs(served: ServedStore, masker: Masker) -> Found:
    """Batches and load tests at work."""
    store = served.store
    found, _ = await _some(store, Query(status=_AT_WORK_STATES), _AT_WORK, masker)
    jobs = [job for job in found if job.kind != DEFAULT][:_RUNS]
    return {"runs": [run_of(job, await store.unit_counts(job.id)) for job in jobs]}


async def passing(served: ServedStore, _: Masker) -> Found:
    """Since when jobs have been where they should only pass through."""
    found = {status: await _longest(served.store, status) for status in _PASSING_STATES}
    return {"since_ms": {status: since for status, since in found.items() if since is not None}}


async def _longest(store: JobStore, status: str) -> int | None:
    query = Query(status=(status,), oldest_first=True, value_bytes=VALUE_BYTES)
    page = await store.find(query, limit=_PASSING)
    return min((job.changed_ms for job in page.jobs), default=None)


async def _some(store: JobStore, query: Query, most: int, masker: Masker) -> tuple[list[Job], bool]:
    """The first of a list, and whether there are more. In short pages, because rows come with small payloads."""
    query = msgspec.structs.replace(query, value_bytes=VALUE_BYTES)
    found: list[Job] = []
    cursor: str | None = None
    while len(found) < most:
        page = await store.find(query, cursor=cursor, limit=min(_PAGE, most - len(found)))
        found += await without_values(store, page.jobs, masker)
        cursor = page.cursor
        if cursor is None:
            break
    return found, cursor is not None


#: at each turn, and told at once
FAST = (SnapshotQuery(name="numbers", ask=numbers), SnapshotQuery(name="sessions", ask=sessions))
#: seldomer
SLOW = (
    SnapshotQuery(name="unserved", ask=lacking, every=2),
    SnapshotQuery(name="runs", ask=runs, every=2),
    SnapshotQuery(name="failures", ask=failures, every=5),
    SnapshotQuery(name="passing", ask=passing, every=5),
    SnapshotQuery(name="schedules", ask=plans, every=5),
)

__all__ = ["FAST", "SLOW", "SnapshotQuery"]
