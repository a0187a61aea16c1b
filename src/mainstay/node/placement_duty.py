"""The duties of the placement leader for node jobs: read, decide, write.

Each write carries the leadership, so that a leader that lost it without knowing writes nothing. A write that another
writer was faster than is dropped, and decided again from the rows as they are then. What a duty remembers only saves
work: a new leader continues from the store alone.
"""

from __future__ import annotations

import logging

from ..control import (
    AGAIN_S,
    CLEAN_UP_S,
    OPEN_UNITS,
    PLACEMENT_IDLE_S,
    PLACEMENT_POLL_S,
    SETTLED_JOBS,
    UNSETTLED_JOBS,
    Control,
    Duty,
    PlacementRounds,
    open_nodes,
    read_given_back,
)
from ..errors import InvalidInput, SchemaTooNew
from ..model import ErrorInfo, Job, Leadership
from ..stores import Query, all_rows
from ..task import Sealer
from .changes import changes_of
from .decisions import Action, Cluster, End, NodeJobView, decide, is_due, is_settled
from .spec import KIND, NodeSpec, spec_of, unreadable_spec

log = logging.getLogger("mainstay.node")


class PlacementDuty:
    """Advances the node jobs of a store while its session leads."""

    def __init__(self, control: Control, session_id: str, sealer: Sealer) -> None:
        self._store = control.store
        self._rounds = PlacementRounds(control.store, control.jobs)
        self._session_id = session_id
        self._sealer = sealer
        self._unsettled: set[str] = set()
        """jobs of the last round: those that have settled since may have open units"""

    def duties(self) -> list[Duty]:
        return [Duty("node jobs", PLACEMENT_IDLE_S, self.run), Duty("node jobs: clean up", CLEAN_UP_S, self.clean_up)]

    async def run(self, lead: Leadership) -> float:
        """Some rounds, each followed by a wait for a wake."""
        return await self._rounds.run(lambda: self.round(lead))

    async def round(self, lead: Leadership) -> float:
        """Advance every job as far as possible now; returns after how many seconds to look again without a wake."""
        jobs = [job async for job in all_rows(self._store, Query(kind=KIND, status=UNSETTLED_JOBS, oldest_first=True))]
        settled = self._unsettled - {job.id for job in jobs}
        # they are kept until their units are cancelled, also if this round fails
        self._unsettled |= {job.id for job in jobs}
        gone = await self._store.get(sorted(settled)) if settled else []
        cluster = await self._cluster()
        now_ms = self._store.clock.now_ms()
        # a job that has never begun has no units: nothing is read for one that waits for its time
        active = [job for job in jobs if job.token or is_due(job, now_ms)]
        jobs_to_advance = [job for job in [*active, *gone] if job is not None]
        again = await self._rounds.advance_all(jobs_to_advance, lambda job: self._advance(job, cluster, lead))
        self._unsettled = (self._unsettled - settled) | again
        return AGAIN_S if again else PLACEMENT_POLL_S if jobs else PLACEMENT_IDLE_S

    async def clean_up(self, lead: Leadership) -> None:
        """Cancel the open units of settled jobs: another session settled the job while none led."""
        cluster = await self._cluster()
        async for job in all_rows(self._store, Query(kind=KIND, status=SETTLED_JOBS, value_bytes=0)):
            counts = await self._store.unit_counts(job.id)
            if not any(counts.get(status) for status in OPEN_UNITS):
                continue
            if not await self._rounds.tried(job, lambda job: self._advance(job, cluster, lead)):
                self._unsettled.add(job.id)  # the next round tries again

    async def _cluster(self) -> Cluster:
        sessions = await self._store.sessions()
        nodes = open_nodes(sessions, lease_ms=self._store.clock.lease_ms())
        # a manager leads without being a node: its session gets no work, but its start counts
        leader = next((session for session in sessions if session.id == self._session_id), None)
        own = None if leader is None or nodes.get(leader.node) is not leader else leader
        return Cluster(nodes=nodes, own=own, since_ms=None if leader is None else leader.started_ms)

    async def _advance(self, found: Job, cluster: Cluster, lead: Leadership) -> bool:
        """Do what is next for a job until it waits. False: a write was dropped."""
        job: Job | None = found
        while job is not None:
            spec = self._spec(job)
            if spec is None:
                return True
            units = [unit async for unit in all_rows(self._store, Query(parent=job.id))]
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
            return await self._rounds.write(rows, lead, now_ms=now_ms)
        except InvalidInput as error:  # its arguments and the names of its members are too large for a unit
            refusal = ErrorInfo(type="InvalidInput", code=error.code, message=str(error), retryable=False)
            end = End("failed", f"its units cannot be created: {error}", error=refusal, cancels=view.open)
            return await self._write(end, view, spec, lead, now_ms)

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
        if self._rounds.is_new_trouble(job):
            log.warning("this program cannot place a job job_id=%s name=%s: %s", job.id, job.name, problem)
        return None


__all__ = ["PlacementDuty"]
