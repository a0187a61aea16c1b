"""The rounds of a placement leader, whatever the kind of job: wait for a wake, read, write.

Each write carries the leadership, so that a leader that lost it without knowing writes nothing. A write that another
writer was faster than is dropped, and decided again from the rows as they are then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ..errors import NotLeader, StoreError
from ..lifecycle import JOB, UNIT
from ..model import PLACE_QUEUE, Job, Leadership
from ..stores import PLACEMENT_TOPIC, Change, JobStore
from .jobs import JobService
from .rules.placement import given_back_by, may_be_given_back
from .unit_actions import RowChange

log = logging.getLogger("mainstay.control")

#: how long a round waits for a wake while a job is unsettled, and otherwise
PLACEMENT_POLL_S, PLACEMENT_IDLE_S = 0.5, 2.0
#: between two rounds, however many wakes come: each reads all jobs that are unsettled
LEAST_S = 0.05
#: how often all settled jobs are looked at
CLEAN_UP_S = 120.0
#: the wait after a write that another writer was faster than
AGAIN_S = 0.02
#: jobs that are advanced at a time
_AT_ONCE = 8
#: rounds of one run of a duty
_ROUNDS = 100
#: events of a unit that are read to find its last session: more than one assignment writes
_RECENT = 20
_FINE = ("applied", "already_applied")

UNSETTLED_JOBS = tuple(state.name for state in JOB.states.values() if not state.settled)
SETTLED_JOBS = tuple(state.name for state in JOB.states.values() if state.settled)
OPEN_UNITS = tuple(state.name for state in UNIT.states.values() if not state.settled)


class PlacementRounds:
    """What the placement duties of all kinds do alike."""

    def __init__(self, store: JobStore, jobs: JobService) -> None:
        self._store = store
        self._jobs = jobs
        self._logged: set[str] = set()
        """jobs that this program cannot place"""

    async def run(self, one: Callable[[], Awaitable[float]]) -> float:
        """Some rounds, each followed by a wait for a wake. `one` returns after how many seconds to look again without
        a wake."""
        async with self._store.wake([f"queue:{PLACE_QUEUE}", PLACEMENT_TOPIC]) as wake:
            for _ in range(_ROUNDS):
                await wake.wait(await one())
                await asyncio.sleep(LEAST_S)
        return 0.0

    async def advance_all(self, jobs: Sequence[Job], advance: Callable[[Job], Awaitable[bool]]) -> set[str]:
        """Advance several jobs at a time: each mostly waits for answers of the store. Returns those of which a write
        was dropped."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(job: Job) -> bool:
            async with limit:
                return await self.tried(job, advance)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {job.id: group.create_task(one(job)) for job in jobs}
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return {job_id for job_id, task in tasks.items() if not task.result()}

    async def tried(self, job: Job, advance: Callable[[Job], Awaitable[bool]]) -> bool:
        """Advance a job. An unexpected error, as of a damaged unit, keeps no other job waiting."""
        try:
            return await advance(job)
        except (NotLeader, StoreError):
            raise
        except Exception:
            if self.is_new_trouble(job):
                log.exception("cannot place a job job_id=%s name=%s", job.id, job.name)
            return True

    def is_new_trouble(self, job: Job) -> bool:
        """Whether this is the first time that this program cannot place a job: it is logged once."""
        known = job.id in self._logged
        self._logged.add(job.id)
        return not known

    async def write(self, rows: Iterable[RowChange], lead: Leadership, *, now_ms: int) -> bool:
        """Write some rows together, or none. False: a row was moved, or a session closed, since they were read. Raises
        `InvalidInput` if a unit cannot be created."""
        changes = [self._change(row, lead, now_ms) for row in rows]
        results = await self._store.apply(changes, lead=lead, together=True)
        for change, result in zip(changes, results, strict=True):
            if result.error is not None:
                log.error("cannot move job_id=%s: %s", change.before.id, result.error)
        return all(result.outcome in _FINE for result in results)

    def _change(self, change: RowChange, lead: Leadership, now_ms: int) -> Change:
        return Change(
            before=change.row,
            moves=change.moves,
            actor=lead.holder,
            at_ms=now_ms,
            spawn=self._jobs.new_jobs(change.units, actor=lead.holder) if change.units else (),
        )


async def read_given_back(store: JobStore, units: Iterable[Job]) -> dict[str, str]:
    """The sessions that gave pending units back, by the ids of the units. The rows do not say it: a pending one has no
    session."""
    found = {}
    for unit in units:
        if may_be_given_back(unit):
            events = await store.events(unit.id, after=max(0, unit.version - _RECENT))
            found[unit.id] = given_back_by(events)
    return found


__all__ = [
    "AGAIN_S",
    "CLEAN_UP_S",
    "OPEN_UNITS",
    "PLACEMENT_IDLE_S",
    "PLACEMENT_POLL_S",
    "SETTLED_JOBS",
    "UNSETTLED_JOBS",
    "PlacementRounds",
    "read_given_back",
]
