"""The sweep: every worker takes back the claims of dead sessions and ends overdue attempts, once a second.

Compare-and-swap only: a row that has moved since it was read is decided again from its new state, and most often left
alone. A row that fails is logged and skipped; the sweep continues with the rest.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ..errors import StoreError
from ..model import Job
from ..stores import JobStore, Overdue
from .ended_log import log_end
from .rules import overdue
from .rules.guard import SweepGuard
from .writer import Decision, MoveRequest, Moves, Outcome, Writer

log = logging.getLogger("mainstay.control")

_ACTOR = "sweeper"
_BATCH = 100
#: the first page may be full of rows that fail; read past them up to here
_MOST = 10_000


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one sweep."""

    moved: Mapping[str, int] = {}
    """number of rows by their new status"""
    failed: tuple[str, ...] = ()
    """ids of rows that failed; the log says why"""
    closed: tuple[str, ...] = ()
    """ids of jobs whose last unsettled unit this sweep ended; their holders decide what follows"""
    waiting: bool = False
    """nothing was done: this sweeper's own heartbeats fail, or failed recently, and it gives the other sessions a lease
    to be heard"""
    again_s: float | None = None
    """sweep again this soon, because a session may be dead; None: at the usual time"""

    @property
    def total(self) -> int:
        return sum(self.moved.values())


class Sweeper:
    """Sweeps a store."""

    def __init__(self, store: JobStore, writer: Writer, guard: SweepGuard, rng: random.Random) -> None:
        self._store = store
        self._writer = writer
        self._guard = guard
        self._rng = rng

    async def sweep(self) -> Swept:
        """Sweep until nothing is overdue, except for rows that fail."""
        if not self._guard.may_sweep(self._store.clock.lease_ms()) or not await self._is_heard():
            return Swept(waiting=True)
        moved: Counter[str] = Counter()
        failed: list[str] = []
        closed: list[str] = []
        seen: set[str] = set()
        limit = _BATCH
        while True:
            overdue_jobs = await self._store.overdue(limit)
            fresh = [item for item in overdue_jobs if item.job.id not in seen]
            for item, outcome in await self._deal_with(fresh):
                if outcome is None or outcome.outcome in ("invalid", "conflict"):
                    failed.append(item.job.id)
                elif outcome.outcome == "applied" and outcome.job is not None:
                    moved[outcome.job.status] += 1
                    if outcome.last and outcome.job.parent is not None:
                        closed.append(outcome.job.parent)
                    log.info("swept job_id=%s cause=%s to=%s", item.job.id, item.cause, outcome.job.status)
                    if _failed(item.job, outcome.job):
                        log_end(outcome)
                # whatever the outcome (another sweeper may have been faster), it had its turn
                seen.add(item.job.id)
            if len(overdue_jobs) < limit or limit >= _MOST:
                again_s: float | None = getattr(self._store, "look_again_s", None)
                return Swept(moved=dict(moved), failed=tuple(failed), closed=tuple(closed), again_s=again_s)
            if len(fresh) < limit // 2:
                limit *= 2

    async def _is_heard(self) -> bool:
        """Whether the store answers our heartbeat without a pause. A server that was frozen would answer who is silent
        before it has processed the heartbeats of the others."""
        clock, guard = self._store.clock, self._guard
        beats = guard.watching
        guard.trying(clock.lease_ms())
        try:
            await self._store.beat([])
            guard.heard(clock.lease_ms())
            return guard.may_sweep(clock.lease_ms())
        finally:
            if not beats:
                guard.forget()

    async def _deal_with(self, found: Sequence[Overdue]) -> list[tuple[Overdue, Outcome | None]]:
        if not found:
            return []
        fresh = await self._fresh(found)
        requests = [(item, MoveRequest(job, self._decide(item), _ACTOR)) for item, job in fresh]
        try:
            outcomes: Sequence[Outcome | None] = await self._writer.write([request for _, request in requests])
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - one bad row must not stop the sweep; write them one by one
            outcomes = [await self._alone(request) for _, request in requests]
        return [(item, outcome) for (item, _), outcome in zip(requests, outcomes, strict=True)]

    async def _fresh(self, found: Sequence[Overdue]) -> list[tuple[Overdue, Job]]:
        """Rows whose time is up are read again: progress changes no version, and it counts for the decision."""
        timed = [item.job.id for item in found if item.cause == "time"]
        rows = dict(zip(timed, await self._store.get(timed), strict=True)) if timed else {}
        return [(item, rows.get(item.job.id) or item.job) for item in found]

    async def _alone(self, request: MoveRequest) -> Outcome | None:
        try:
            return (await self._writer.write([request]))[0]
        except StoreError:
            raise
        except Exception:
            log.exception("cannot sweep job_id=%s; run mainstay check for the cause", request.job.id)
            return None

    def _decide(self, item: Overdue) -> Decision:
        session, token = item.job.session, item.job.token

        def decide(job: Job, now_ms: int) -> Moves:
            if item.cause == "time":
                return overdue.overran(job, now_ms=now_ms, rng=self._rng)
            if (job.session, job.token) != (session, token):
                return ()  # claimed by another session since
            return overdue.lost(job, now_ms=now_ms)

        return decide


def _failed(before: Job, after: Job) -> bool:
    """Whether an attempt failed, or the job was given up without one (it missed its queue deadline)."""
    counted = (after.failures, after.crashes) != (before.failures, before.crashes)
    return counted or (after.error is not None and after.error != before.error and after.settled_ms is not None)
