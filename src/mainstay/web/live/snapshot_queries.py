"""The queries of a snapshot. Their cost does not grow with the number of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...control import schedule_data, schedules, unserved
from ...control.explain import is_alive
from ...kinds import DEFAULT
from ...lifecycle import JOB
from ...model import Job, is_private
from ...stores import JobStore, Query
from ..api.job_pages import VALUE_BYTES
from ..api.masker import Masker
from ..stores import ServedStore
from .snapshot import FailureSummary, QueueSnapshot, SessionSnapshot, by_cause, held, in_order, run_of, waiting
from .store_access import without_values

#: sessions whose jobs are read, and the jobs read for each
_SESSIONS, _HELD = 100, 20
#: jobs listed for each session
_LISTED = 5
#: failed jobs that are grouped by cause
_FAILED = 200
#: held jobs that are searched for batches and load tests, and how many of these are listed
_AT_WORK, _RUNS = 200, 20
#: rows read at a time
_PAGE = 50
#: jobs read for the age of each passing state
_PASSING = 50

#: states of failed jobs; skipped and cancelled jobs did not fail
_FAILED_STATES = tuple(name for name, state in JOB.states.items() if state.settled and not state.final)
_AT_WORK_STATES = tuple(name for name, state in JOB.states.items() if state.holds)
#: states that jobs should leave soon, by themselves
_PASSING_STATES = tuple(name for name in _AT_WORK_STATES if name != "running")

#: fields of a snapshot
Fields = dict[str, Any]


class SnapshotQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One query. It runs every `every`-th time."""

    name: str
    read: Callable[[ServedStore, Masker], Awaitable[Fields]]
    every: int = 1


async def numbers(served: ServedStore, _: Masker) -> Fields:
    """Counts, rates, ages, and paused queues."""
    store = served.store
    stats, settings = await store.stats(), {queue.name: queue for queue in await store.queues()}
    queues, counts = [], Counter[str]()
    for name in sorted(stats.queues.keys() | settings.keys()):
        counted, setting = stats.queues.get(name), settings.get(name)
        by_status = {} if counted is None else in_order(Counter(counted.counts))
        counts.update(by_status)
        if is_private(name):
            continue
        queues.append(
            QueueSnapshot(
                name=name,
                counts=by_status,
                waiting=waiting(by_status),
                oldest_ready_ms=None if counted is None else counted.oldest_ready_ms,
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


async def sessions(served: ServedStore, masker: Masker) -> Fields:
    """Sessions of workers, and the jobs that they hold."""
    store = served.store
    lease_ms = store.clock.lease_ms()
    stored = await store.sessions()
    # live sessions first, so that many dead ones do not push them off the list
    stored.sort(key=lambda each: (not is_alive(each, lease_ms), each.worker, each.started_ms, each.id))
    found = []
    for session in stored[:_SESSIONS]:
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
                jobs=[held(job, masker) for job in page.jobs[:_LISTED]],
            )
        )
    return {"sessions": found, "live_sessions": sum(is_alive(session, lease_ms) for session in stored)}


async def unserved_jobs(served: ServedStore, _: Masker) -> Fields:
    """Jobs that no live worker takes."""
    store = served.store
    found = unserved(await store.stats(), await store.sessions(), store.clock.lease_ms())
    return {"unserved": [each.text for each in found]}


async def failures(served: ServedStore, masker: Masker) -> Fields:
    """The newest failed jobs, by cause."""
    found, more = await _some(served.store, Query(status=_FAILED_STATES), _FAILED, masker)
    return {"failures": FailureSummary(looked_at=len(found), more=more, causes=by_cause(found))}


async def stored_schedules(served: ServedStore, _: Masker) -> Fields:
    """Schedules, with their next ticks and last job."""
    return {"schedules": [schedule_data(view) for view in await schedules.describe(served.control)]}


async def runs(served: ServedStore, masker: Masker) -> Fields:
    """Running batches and load tests."""
    store = served.store
    found, _ = await _some(store, Query(status=_AT_WORK_STATES), _AT_WORK, masker)
    jobs = [job for job in found if job.kind != DEFAULT][:_RUNS]
    return {"runs": [run_of(job, await store.unit_counts(job.id)) for job in jobs]}


async def passing(served: ServedStore, _: Masker) -> Fields:
    """Since when jobs have been in states that they should leave soon."""
    found = {status: await _longest(served.store, status) for status in _PASSING_STATES}
    return {"since_ms": {status: since for status, since in found.items() if since is not None}}


async def _longest(store: JobStore, status: str) -> int | None:
    query = Query(status=(status,), oldest_first=True, value_bytes=VALUE_BYTES)
    page = await store.find(query, limit=_PASSING)
    return min((job.changed_ms for job in page.jobs), default=None)


async def _some(store: JobStore, query: Query, most: int, masker: Masker) -> tuple[list[Job], bool]:
    """The first jobs of a list, and whether there are more. In short pages, because rows come with small payloads."""
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


#: at each read, and published at once
FAST = (SnapshotQuery(name="numbers", read=numbers), SnapshotQuery(name="sessions", read=sessions))
#: less often
SLOW = (
    SnapshotQuery(name="unserved", read=unserved_jobs, every=2),
    SnapshotQuery(name="runs", read=runs, every=2),
    SnapshotQuery(name="failures", read=failures, every=5),
    SnapshotQuery(name="passing", read=passing, every=5),
    SnapshotQuery(name="schedules", read=stored_schedules, every=5),
)

__all__ = ["FAST", "SLOW", "SnapshotQuery"]
