"""What changes while somebody watches: one job until it settles, or the newest of many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from ..clock import duration_text
from ..errors import JobNotFound, WaitTimeout
from ..lifecycle import Event, table_of
from ..model import Job, Session
from ..stores import JobStore, Query

#: how many jobs that left the page are still followed until they settle
_FOLLOWED = 500


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often to look, and for how long."""

    every_s: float
    for_s: float | None = None


class OneSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One job at one moment."""

    now_ms: int
    job: Job
    fresh: list[Event]
    """what happened since the last look; at the first look, everything that is told"""
    sessions: dict[str, Session]
    first: bool
    progressed: bool

    @property
    def settled(self) -> bool:
        return is_settled(self.job)


class ManySeen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest jobs at one moment."""

    now_ms: int
    counts: dict[str, int]
    counts_changed: bool
    newest: list[Job]
    changed: list[tuple[str | None, Job]]
    """(state before, job) of every job that was moved since the last look; None: it is new"""


def is_settled(job: Job) -> bool:
    """Whether nothing happens to it any more by itself."""
    state = table_of(job.parent).get(job.status)
    return state is not None and state.settled


async def one(store: JobStore, job_id: str, pace: Pace, *, told: int) -> AsyncIterator[OneSeen]:
    """Look at a job until it is settled. Its end is noticed at once, everything else at the next look.

    Of its story so far, the last `told` events come with the first look.
    """
    loop = asyncio.get_running_loop()
    ends = None if pace.for_s is None else loop.time() + pace.for_s
    seq: int | None = None
    progress_ms: int | None = None
    async with store.wake([f"job:{job_id}"]) as wake:
        while True:
            (job,) = await store.get([job_id])
            if job is None:
                raise JobNotFound(job_id)
            first = seq is None
            after = max(0, job.version - told) if seq is None else seq
            # the row was read first: what came after it is told at the next look, with the row that goes with it
            fresh = [event for event in await store.events(job_id, after=after) if event.seq <= job.version]
            seq = fresh[-1].seq if fresh else job.version
            progressed = not first and job.progress_ms is not None and job.progress_ms != progress_ms
            progress_ms = job.progress_ms
            yield OneSeen(
                now_ms=store.clock.now_ms(),
                job=job,
                fresh=fresh,
                sessions={session.id: session for session in await store.sessions()},
                first=first,
                progressed=progressed,
            )
            if seq < job.version:
                continue  # more happened than one page holds
            if is_settled(job):
                return
            left = pace.every_s if ends is None else min(pace.every_s, ends - loop.time())
            if left <= 0:
                waited = duration_text(pace.for_s or 0)
                raise WaitTimeout(f"job {job_id} is still {job.status} after {waited}; it continues")
            await wake.wait(left)


async def many(store: JobStore, query: Query, pace: Pace, *, limit: int) -> AsyncIterator[ManySeen]:
    """Look at the newest jobs that match, again and again. Jobs seen once are followed until they settle, also when
    they match no longer: that is how one sees them leave."""
    loop = asyncio.get_running_loop()
    ends = None if pace.for_s is None else loop.time() + pace.for_s
    known: dict[str, Job] = {}
    counts: dict[str, int] | None = None
    while True:
        page = (await store.find(query, limit=limit)).jobs
        there = {job.id for job in page}
        away = [job_id for job_id, job in known.items() if job_id not in there and not is_settled(job)][-_FOLLOWED:]
        rows = [*page, *(job for job in await store.get(away) if job is not None)]
        changed = [
            (known[job.id].status if job.id in known else None, job)
            for job in rows
            if counts is not None and (job.id not in known or known[job.id].version != job.version)
        ]
        known = {job.id: job for job in rows}
        now_counts = await _counts(store, query)
        yield ManySeen(
            now_ms=store.clock.now_ms(),
            counts=now_counts,
            counts_changed=now_counts != counts,
            newest=page,
            changed=sorted(changed, key=lambda change: (change[1].changed_ms, change[1].id)),
        )
        counts = now_counts
        left = pace.every_s if ends is None else min(pace.every_s, ends - loop.time())
        if left <= 0:
            return
        # nobody is told when any job moves, so this looks again after a while
        await asyncio.sleep(left)


async def _counts(store: JobStore, query: Query) -> dict[str, int]:
    """Jobs by state: of its queue, if the filter names one. They are kept by the store and cost nothing."""
    counts: dict[str, int] = {}
    for name, queue in (await store.stats()).queues.items():
        if query.queue in (None, name):
            for status, n in queue.counts.items():
                if query.status is None or status in query.status:
                    counts[status] = counts.get(status, 0) + n
    return counts
