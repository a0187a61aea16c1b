"""Repeated reads of the store for `jobs watch`: one job until it settles, or the newest of many jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import msgspec

from ..clock import duration_text
from ..errors import JobNotFound, WaitTimeout
from ..lifecycle import Event, table_of
from ..model import Job, Session
from ..stores import JobStore, Query

#: how many jobs that left the page are followed until they settle
_FOLLOWED = 500


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often to read, and for how long."""

    every_s: float
    for_s: float | None = None

    def pause_s(self, elapsed_s: float) -> float:
        """The time until the next read; 0 or less: the time is over."""
        return self.every_s if self.for_s is None else min(self.every_s, self.for_s - elapsed_s)


class JobObservation(msgspec.Struct, frozen=True, kw_only=True):
    """One job at one moment."""

    now_ms: int
    job: Job
    new_events: list[Event]
    """events since the last read; at the first read, the requested part of the history"""
    sessions: list[Session]
    first: bool
    progressed: bool


class JobsObservation(msgspec.Struct, frozen=True, kw_only=True):
    """The newest jobs at one moment."""

    now_ms: int
    counts: dict[str, int]
    counts_changed: bool
    newest: list[Job]
    changed: list[tuple[str | None, Job]]
    """(state before, job) of every job that changed since the last read; None: it is new"""


def is_settled(job: Job) -> bool:
    """Whether its status is a settled one."""
    state = table_of(job.parent).get(job.status)
    return state is not None and state.settled


async def observe_job(store: JobStore, job_id: str, pace: Pace, *, history: int) -> AsyncIterator[JobObservation]:
    """Read a job until it is settled. Its end wakes this up; other changes wait for the next read.

    The first observation has the last `history` events.
    """
    clock = asyncio.get_running_loop().time
    started = clock()
    seq: int | None = None
    progress_ms: int | None = None
    async with store.wake([f"job:{job_id}"]) as wake:
        while True:
            (job,) = await store.get([job_id])
            if job is None:
                raise JobNotFound(job_id)
            first = seq is None
            after = max(0, job.version - history) if seq is None else seq
            # the row was read first: later events are for the next read, with the row that belongs to them
            events = [event for event in await store.events(job_id, after=after) if event.seq <= job.version]
            seq = events[-1].seq if events else job.version
            progressed = not first and job.progress_ms is not None and job.progress_ms != progress_ms
            progress_ms = job.progress_ms
            yield JobObservation(
                now_ms=store.clock.now_ms(),
                job=job,
                new_events=events,
                sessions=await store.sessions(),
                first=first,
                progressed=progressed,
            )
            if seq < job.version:
                continue  # there are more events than one page holds
            if is_settled(job):
                return
            pause_s = pace.pause_s(clock() - started)
            if pause_s <= 0:
                waited = duration_text(pace.for_s or 0)
                raise WaitTimeout(f"job {job_id} is still {job.status} after {waited}; it continues")
            await wake.wait(pause_s)


async def observe_jobs(store: JobStore, query: Query, pace: Pace, *, limit: int) -> AsyncIterator[JobsObservation]:
    """Read the newest jobs that match, again and again. A job is followed until it settles, even if it no longer
    matches, so that its end is shown."""
    clock = asyncio.get_running_loop().time
    started = clock()
    known: dict[str, Job] = {}
    counts: dict[str, int] | None = None
    while True:
        page = (await store.find(query, limit=limit)).jobs
        on_page = {job.id for job in page}
        left = [job_id for job_id, job in known.items() if job_id not in on_page and not is_settled(job)]
        jobs = [*page, *(job for job in await store.get(left[-_FOLLOWED:]) if job is not None)]
        changed = [
            (known[job.id].status if job.id in known else None, job)
            for job in jobs
            if counts is not None and (job.id not in known or known[job.id].version != job.version)
        ]
        known = {job.id: job for job in jobs}
        new_counts = await _counts(store, query)
        yield JobsObservation(
            now_ms=store.clock.now_ms(),
            counts=new_counts,
            counts_changed=new_counts != counts,
            newest=page,
            changed=sorted(changed, key=lambda change: (change[1].changed_ms, change[1].id)),
        )
        counts = new_counts
        pause_s = pace.pause_s(clock() - started)
        if pause_s <= 0:
            return
        # no wake covers a change of any job
        await asyncio.sleep(pause_s)


async def _counts(store: JobStore, query: Query) -> dict[str, int]:
    """Jobs by state, in the queue of the filter if it names one. The store keeps these counts, so they cost nothing."""
    counts: Counter[str] = Counter()
    for name, queue in (await store.stats()).queues.items():
        if query.queue in (None, name):
            counts.update({s: n for s, n in queue.counts.items() if query.status is None or s in query.status})
    return dict(counts)
