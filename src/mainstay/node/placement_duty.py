"""The duties of the placement leader for node jobs: read, decide, write.

Each write carries the leadership, so that a leader that lost it without knowing writes nothing. A write that another
writer was faster than is dropped, and decided again from the rows as they are then. What a duty remembers only saves
work: a new leader continues from the store alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence

from ..control import Control, Duty, open_nodes
from ..errors import InvalidInput, NotLeader, SchemaTooNew, StoreError
from ..lifecycle import JOB, UNIT, State
from ..model import PLACE_QUEUE, ErrorInfo, Job, Leadership
from ..stores import Change, Query
from ..task import Sealer
from .changes import RowChange, changes_of
from .decisions import Action, Cluster, End, NodeJobView, decide, is_due, is_settled
from .snapshot import read_given_back
from .spec import KIND, NodeSpec, spec_of, unreadable_spec

log = logging.getLogger("mainstay.node")

#: how long a round waits for a wake while a job is unsettled, and otherwise
POLL_S, IDLE_S = 0.5, 2.0
#: how often all settled jobs are looked at
CLEAN_UP_S = 300.0
#: the wait after a write that another writer was faster than
_AGAIN_S = 0.02
#: jobs that are advanced at a time
_AT_ONCE = 8
#: rounds of one run of the duty
_ROUNDS = 100
_PAGE = 200
_FINE = ("applied", "already_applied")


def _names(states: Iterator[State], *, settled: bool) -> tuple[str, ...]:
    return tuple(state.name for state in states if state.settled is settled)


_UNSETTLED_JOBS = _names(iter(JOB.states.values()), settled=False)
_SETTLED_JOBS = _names(iter(JOB.states.values()), settled=True)
_OPEN_UNITS = _names(iter(UNIT.states.values()), settled=False)


class PlacementDuty:
    """Advances the node jobs of a store while its session leads."""

    def __init__(self, control: Control, session_id: str, sealer: Sealer) -> None:
        self._control = control
        self._store = control.store
        self._session_id = session_id
        self._sealer = sealer
        self._unsettled: set[str] = set()
        """jobs of the last round: those that have settled since may have open units"""
        self._logged: set[str] = set()
        """jobs that this program cannot place"""

    def duties(self) -> list[Duty]:
        return [Duty("node jobs", IDLE_S, self.run), Duty("node jobs: clean up", CLEAN_UP_S, self.clean_up)]

    async def run(self, lead: Leadership) -> float:
        """Some rounds, each followed by a wait for a wake."""
        async with self._store.wake([f"queue:{PLACE_QUEUE}"]) as wake:
            for _ in range(_ROUNDS):
                await wake.wait(await self.round(lead))
        return 0.0

    async def round(self, lead: Leadership) -> float:
        """Advance every job as far as possible now; returns after how many seconds to look again without a wake."""
        jobs = [job async for job in self._find(Query(kind=KIND, status=_UNSETTLED_JOBS, oldest_first=True))]
        settled = self._unsettled - {job.id for job in jobs}
        # they are kept until their units are cancelled, also if this round fails
        self._unsettled |= {job.id for job in jobs}
        gone = await self._store.get(sorted(settled)) if settled else []
        cluster = await self._cluster()
        now_ms = self._store.clock.now_ms()
        # a job that has never begun has no units: nothing is read for one that waits for its time
        active = [job for job in jobs if job.token or is_due(job, now_ms)]
        again = await self._try_all([job for job in [*active, *gone] if job is not None], cluster, lead)
        self._unsettled = (self._unsettled - settled) | again
        return _AGAIN_S if again else POLL_S if jobs else IDLE_S

    async def clean_up(self, lead: Leadership) -> None:
        """Cancel the open units of settled jobs: another session settled the job while none led."""
        cluster = await self._cluster()
        async for job in self._find(Query(kind=KIND, status=_SETTLED_JOBS, value_bytes=0)):
            counts = await self._store.unit_counts(job.id)
            if any(counts.get(status) for status in _OPEN_UNITS) and not await self._tried(job, cluster, lead):
                self._unsettled.add(job.id)  # the next round tries again

    async def _cluster(self) -> Cluster:
        sessions = await self._store.sessions()
        nodes = open_nodes(sessions, lease_ms=self._store.clock.lease_ms())
        # a manager leads without being a node: its session gets no work, but its start counts
        leader = next((session for session in sessions if session.id == self._session_id), None)
        own = None if leader is None or nodes.get(leader.node) is not leader else leader
        return Cluster(nodes=nodes, own=own, since_ms=None if leader is None else leader.started_ms)

    async def _try_all(self, jobs: Sequence[Job], cluster: Cluster, lead: Leadership) -> set[str]:
        """Advance several jobs at a time: each mostly waits for answers of the store. Returns those of which a write
        was dropped."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(job: Job) -> bool:
            async with limit:
                return await self._tried(job, cluster, lead)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {job.id: group.create_task(one(job)) for job in jobs}
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return {job_id for job_id, task in tasks.items() if not task.result()}

    async def _tried(self, job: Job, cluster: Cluster, lead: Leadership) -> bool:
        """Advance a job. An unexpected error, as of a damaged unit, keeps no other job waiting."""
        try:
            return await self._advance(job, cluster, lead)
        except (NotLeader, StoreError):
            raise
        except Exception:
            if job.id not in self._logged:
                self._logged.add(job.id)
                log.exception("cannot place a job job_id=%s name=%s", job.id, job.name)
            return True

    async def _advance(self, found: Job, cluster: Cluster, lead: Leadership) -> bool:
        """Do what is next for a job until it waits. False: a write was dropped."""
        job: Job | None = found
        while job is not None:
            spec = self._spec(job)
            if spec is None:
                return True
            units = [unit async for unit in self._find(Query(parent=job.id))]
            [seen] = await self._store.get([job.id])
            if seen is None or seen.version != job.version:
                job = seen  # it moved while its units were read, so they may be those of another step
                continue
            now_ms = self._store.clock.now_ms()
            if isinstance(spec, ErrorInfo):
                view = NodeJobView(job, unreadable_spec().policy, units)
                to = "cancelled" if job.status == "cancelling" else "failed"
                actions: list[Action] = [End(to, spec.message, error=spec, cancels=view.open)]
                spec = unreadable_spec()
            else:
                view = NodeJobView(job, spec.policy, units, given_back=await read_given_back(self._store, units))
                actions = decide(view, cluster, now_ms)
            for action in actions:
                if not await self._write(action, view, spec, lead, now_ms):
                    return False
            if not actions:
                return True
            [after] = await self._store.get([job.id])
            job = after if after is not None and after.version != job.version else None
        return True

    async def _write(self, action: Action, view: NodeJobView, spec: NodeSpec, lead: Leadership, now_ms: int) -> bool:
        """Write all rows of an action together. False: a row was moved, or a session closed, since they were read."""
        rows = changes_of(action, view, spec, epoch=lead.epoch, now_ms=now_ms)
        try:
            changes = [self._change(row, lead, now_ms) for row in rows]
        except InvalidInput as error:  # its arguments and the names of its members are too large for a unit
            refusal = ErrorInfo(type="InvalidInput", code=error.code, message=str(error), retryable=False)
            end = End("failed", f"its units cannot be created: {error}", error=refusal, cancels=view.open)
            return await self._write(end, view, spec, lead, now_ms)
        results = await self._store.apply(changes, lead=lead, together=True)
        for row, result in zip(rows, results, strict=True):
            if result.error is not None:
                log.error("cannot move job_id=%s: %s", row.row.id, result.error)
        return all(result.outcome in _FINE for result in results)

    def _change(self, change: RowChange, lead: Leadership, now_ms: int) -> Change:
        return Change(
            before=change.row,
            moves=change.moves,
            actor=lead.holder,
            at_ms=now_ms,
            spawn=self._control.jobs.new_jobs(change.units, actor=lead.holder) if change.units else (),
        )

    def _spec(self, job: Job) -> NodeSpec | ErrorInfo | None:
        """The payload of a job. An error: it can never be read; None: another program may read it."""
        if is_settled(job):
            return unreadable_spec()  # its units are only cancelled
        try:
            self._sealer.open(job.payload, field="payload")
        except InvalidInput as error:
            problem = str(error)
        else:
            try:
                return spec_of(job, self._sealer)
            except SchemaTooNew as error:
                problem = str(error)
            except InvalidInput as error:
                return ErrorInfo(type="BadArguments", code="bad_arguments", message=str(error), retryable=False)
        if job.id not in self._logged:
            self._logged.add(job.id)
            log.warning("this program cannot place a job job_id=%s name=%s: %s", job.id, job.name, problem)
        return None

    async def _find(self, query: Query) -> AsyncIterator[Job]:
        cursor: str | None = None
        while True:
            page = await self._store.find(query, cursor=cursor, limit=_PAGE)
            for job in page.jobs:
                yield job
            cursor = page.cursor
            if cursor is None:
                return


__all__ = ["CLEAN_UP_S", "IDLE_S", "POLL_S", "PlacementDuty"]
