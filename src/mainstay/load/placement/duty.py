"""The duty of the placement leader for the runs on nodes: read, decide, write.

What it remembers only saves work: a new leader continues from the store alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from ...control import (
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
)
from ...errors import InvalidInput
from ...model import LEAD_QUEUE, ErrorInfo, Job, Leadership
from ...stores import Query, all_rows
from ..kind import KIND, SLICE
from .changes import run_changes
from .decisions import Decisions, FailRun, NodePool, Place, PlacedRun, RunAction, decide, node_pool
from .dispatch_counts import DispatchCounts
from .placed_rows import VALUE_BYTES, PlacedRows
from .recent_cores import RecentCores

log = logging.getLogger("mainstay.load")

#: how often a round is decided again at once, because what it wrote has made something else possible
_MOST_STEPS = 3


class RunPlacementDuty:
    """Places the runs of a store on its nodes while its session leads."""

    def __init__(self, control: Control) -> None:
        self._store = control.store
        self._rounds = PlacementRounds(control.store, control.jobs)
        self._rows = PlacedRows(control.store)
        self.counts = DispatchCounts()
        self._unsettled: set[str] = set()
        """jobs of the last round: those that have settled since may have open slices"""
        self._recent = RecentCores()
        self._epoch: int | None = None
        """the epoch in which all nodes were asked for the slices that they hold"""

    def duties(self) -> list[Duty]:
        return [
            Duty("runs on nodes", PLACEMENT_IDLE_S, self.run, counts=self.counts.by_outcome),
            Duty("runs on nodes: clean up", CLEAN_UP_S, self.clean_up),
        ]

    async def run(self, lead: Leadership) -> float:
        """Some rounds, each followed by a wait for a wake."""
        return await self._rounds.run(lambda: self.round(lead))

    async def round(self, lead: Leadership) -> float:
        """Do all that can be done now; returns after how many seconds to look again without a wake."""
        for _ in range(_MOST_STEPS):
            jobs, again = await self._step(lead)
            if not again:
                return PLACEMENT_POLL_S if jobs else PLACEMENT_IDLE_S
        return AGAIN_S

    async def clean_up(self, lead: Leadership) -> None:
        """Find the settled jobs with open slices: another session settled them while none led. The next round cancels
        their slices."""
        del lead
        query = Query(kind=KIND.name, queue=LEAD_QUEUE, status=SETTLED_JOBS, value_bytes=0)
        async for job in all_rows(self._store, query):
            counts = await self._store.unit_counts(job.id)
            if any(counts.get(status) for status in OPEN_UNITS):
                self._unsettled.add(job.id)

    async def _step(self, lead: Leadership) -> tuple[int, bool]:
        """Decide once, and write it. Returns how many runs are unsettled, and whether to decide again at once."""
        is_new = self._epoch != lead.epoch
        if is_new:
            self._unsettled |= await self._jobs_of_nodes()
            self._epoch = lead.epoch
        query = Query(
            kind=KIND.name, queue=LEAD_QUEUE, status=UNSETTLED_JOBS, oldest_first=True, value_bytes=VALUE_BYTES
        )
        jobs = [job async for job in all_rows(self._store, query)]
        settled = self._unsettled - {job.id for job in jobs}
        # they are kept until their slices are cancelled, also if this step fails
        self._unsettled |= {job.id for job in jobs}
        gone = await self._store.get(sorted(settled)) if settled else []
        runs, unreadable = await self._runs([*jobs, *(job for job in gone if job is not None)])
        self.counts.observe(runs, is_first=is_new)
        lease_ms = self._store.clock.lease_ms()
        pool = node_pool(await self._store.sessions(), lease_ms=lease_ms).without(unreadable)
        pool = self._recent.added_to(pool, lease_ms)
        now_ms = self._store.clock.now_ms()
        decisions = decide(runs, pool, now_ms)
        dropped = await self._write(decisions, pool, lead, now_ms)
        self._unsettled = (self._unsettled - settled) | (dropped & settled)
        placed = any(isinstance(action, Place) for _, action in decisions.actions)
        return len(jobs), bool(dropped) or placed

    async def _jobs_of_nodes(self) -> set[str]:
        """The jobs of all slices that nodes hold: they use cores, also if their job has settled since. So the first
        round of a leader gives no core away that is in use."""
        found = set()
        for session in await self._store.sessions():
            if session.node and not session.dead:
                query = Query(session=session.id, kind=KIND.name, name=SLICE, value_bytes=0)
                found |= {unit.parent async for unit in all_rows(self._store, query) if unit.parent is not None}
        return found

    async def _runs(self, jobs: Sequence[Job]) -> tuple[list[PlacedRun], set[str]]:
        """The runs, and the sessions that hold slices of others, which cannot be read."""
        runs: list[PlacedRun] = []
        unreadable: set[str] = set()

        async def read(job: Job) -> bool:
            try:
                run = await self._rows.run(job)
            except msgspec.DecodeError as error:
                unreadable.update(await self._sessions_of(job))
                if self._rounds.is_new_trouble(job):
                    log.error("the slices of job_id=%s cannot be read, so their nodes get no others: %s", job.id, error)
                return True
            if run is not None:
                runs.append(run)
            return True

        await self._rounds.advance_all(jobs, read)
        self._rows.keep({job.id for job in jobs})
        return runs, unreadable

    async def _sessions_of(self, job: Job) -> set[str]:
        units = all_rows(self._store, Query(parent=job.id, value_bytes=0))
        return {unit.session async for unit in units if unit.session is not None}

    async def _write(self, decisions: Decisions, pool: NodePool, lead: Leadership, now_ms: int) -> set[str]:
        """Write all actions. Returns the jobs of which a write was dropped, because another writer was faster."""
        by_job: dict[str, list[tuple[PlacedRun, RunAction]]] = {}
        for run, action in decisions.actions:
            by_job.setdefault(run.job.id, []).append((run, action))

        async def write(job: Job) -> bool:
            done = True
            for run, action in by_job[job.id]:
                try:
                    written = await self._written(action, run, lead, now_ms)
                except InvalidInput as error:  # the modules of its slices are too many for their payload
                    log.error("the slices of job_id=%s cannot be created: %s", job.id, error)
                    refusal = ErrorInfo(type="InvalidInput", code=error.code, message=str(error), retryable=False)
                    written = await self._written(FailRun(refusal), run, lead, now_ms)
                if written:
                    self.counts.add(run, action)
                    self._recent.note(run, action, pool, self._store.clock.lease_ms())
                done = written and done
                if isinstance(action, Place) and done:
                    cores = {each.node: each.cores for each in action.slices}
                    log.info("placed a run job_id=%s round=%d cores=%s", job.id, action.round, cores)
            return done

        return await self._rounds.advance_all([runs[0][0].job for runs in by_job.values()], write)

    async def _written(self, action: RunAction, run: PlacedRun, lead: Leadership, now_ms: int) -> bool:
        """Write one action. False: a row has moved since it was read."""
        rows = run_changes(action, run, epoch=lead.epoch, now_ms=now_ms)
        whole = await self._rows.whole([change.row for change in rows])
        if whole is None:
            return False
        changes = [msgspec.structs.replace(change, row=whole[change.row.id]) for change in rows]
        return await self._rounds.write(changes, lead, now_ms=now_ms)


__all__ = ["RunPlacementDuty"]
