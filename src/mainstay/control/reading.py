"""Looking: one job, its story, and waiting for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import JobNotFound, WaitTimeout
from ..lifecycle import UNIT, Event, story, time_text
from ..model import Job, check_id
from ..stores import JobStore, Refusal, Wake
from .options import MOST
from .polling import Polls, is_over

#: a story tells this many of the newest events; older ones are read with `events`
_TOLD = 1000
#: to be asleep for so long and look again costs nothing
_LONGEST_S = 600.0
_OPEN = frozenset(name for name, state in UNIT.states.items() if not state.settled)


class Reader:
    """The looking side."""

    def __init__(self, store: JobStore, poll_s: float) -> None:
        self._store = store
        self._polls = Polls(store, poll_s)

    async def get(self, job_id: str) -> Job:
        """One job; raises `JobNotFound`."""
        return (await self.get_many([job_id]))[0]

    async def get_many(self, ids: Sequence[str]) -> list[Job]:
        """Several jobs, in this order; raises `JobNotFound` for the first that is not there."""
        found = []
        for job_id, job in zip(ids, await self._store.get([check_id(job_id) for job_id in ids]), strict=True):
            if job is None:
                raise JobNotFound(job_id)
            found.append(job)
        return found

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The audit trail in order. A deleted job still has its tombstone."""
        # no job has so many, and not every engine takes a larger number
        events = await self._store.events(check_id(job_id), after=min(after, MOST), limit=limit)
        if not events:
            await self.get(job_id)
        return events

    async def story(self, job_id: str, *, told: Callable[[Event], Event] | None = None) -> list[str]:
        """The audit trail in words, with refused ghosts at the end; `told` makes of an event what may be told of it."""
        job = (await self._store.get([check_id(job_id)]))[0]
        unseen = 0 if job is None else max(0, job.version - _TOLD)
        events = await self.events(job_id, after=unseen, limit=_TOLD + 1)
        lines = story(events if told is None else map(told, events))
        if unseen:
            lines.insert(0, f"... {unseen} earlier events")
        for refusal in await self._store.refusals(job_id):
            lines.append(
                f"-  {time_text(refusal.at_ms)} refused {refusal.wanted} from {refusal.session}: "
                f"its claim (token {refusal.token}) had been lost"
            )
        return lines

    async def awaited(self, job_id: str) -> list[str]:
        """What a job waits or waited for; raises `JobNotFound`."""
        found = await self._store.awaited(check_id(job_id))
        if not found:
            await self.get(job_id)
        return found

    async def refusals(self, job_id: str) -> list[Refusal]:
        """Refused writes of lost claims; a job without any may be gone."""
        return await self._store.refusals(check_id(job_id))

    async def unit_counts(self, job_id: str) -> dict[str, int]:
        """Units of a job per status."""
        return await self._store.unit_counts(check_id(job_id))

    async def has_open_units(self, job_id: str) -> bool:
        """Whether a unit of this job is still to be done."""
        return not _OPEN.isdisjoint(await self._store.unit_counts(check_id(job_id)))

    async def wait(self, job_id: str, timeout_s: float | None) -> Job:
        """The job once it is settled: subscribe, then read, then wait, so that no end is missed."""
        loop = asyncio.get_running_loop()
        ends = None if timeout_s is None else loop.time() + timeout_s
        async with self._store.wake([f"job:{check_id(job_id)}"]) as wake:
            with self._polls.watched(job_id) as seen:
                while True:
                    job = await self.get(job_id)
                    if is_over(job):
                        return job
                    left_s = _LONGEST_S if ends is None else min(_LONGEST_S, ends - loop.time())
                    if left_s <= 0:
                        raise WaitTimeout(f"job {job_id} is still {job.status} after {timeout_s:g}s; it goes on")
                    await _first_of(wake, seen, left_s)
                    if seen.done():
                        return seen.result()


async def _first_of(wake: Wake, seen: asyncio.Future[Job], timeout_s: float) -> None:
    """Wait to be woken, or for somebody else's look at the job."""
    waking = asyncio.ensure_future(wake.wait(timeout_s))
    try:
        either: set[asyncio.Future[Any]] = {waking, seen}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not waking.done():
            waking.cancel()
            await asyncio.wait({waking})
    if not waking.cancelled():
        waking.result()
