"""Placed work: rows that the placement leader assigned to the session of a node.

An assigned row is `dispatched` and waits for its confirmation. The session learns of it through a wake, the answer to a
heartbeat or the audit of its claims; all of them only name ids here. One loop reads the rows, confirms them as their
holder (the acknowledgement of the assignment) and has them run, so that a row is never confirmed by two tasks.

Confirmed work waits in the engine for a free slot, in order and without a limit. It belongs to this node and no other
may run it: giving it back would only use up the number of times that it may be given back. What this node can never
run, or not any more (an unknown job, a drain), is given back unconfirmed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from ..control import Control, Outcome
from ..errors import StoreError
from ..model import PLACE_QUEUE, Job, Session
from .claim_audit import Claim
from .outage import Outage
from .runs import Runs

log = logging.getLogger("mainstay.worker")


class PlacedWork:
    """Confirms what is assigned to the current session, and stops what was taken away from it."""

    def __init__(self, control: Control, runs: Runs, *, session: Callable[[], Session], rng: random.Random) -> None:
        self._control = control
        self._runs = runs
        self._session = session
        self._rng = rng
        self._named: dict[str, None] = {}
        """ids that were named as assigned and have not been read yet"""
        self._unanswered: dict[str, Job] = {}
        """rows whose confirmation got no answer: the store may have it"""
        self._news = asyncio.Event()
        self._taking = asyncio.Lock()

    def name(self, ids: Collection[str]) -> None:
        """These rows are assigned to the session."""
        self._named.update(dict.fromkeys(ids))
        if self._named:
            self._news.set()

    async def run(self) -> None:
        """Take what is assigned, until cancelled."""
        outage = Outage("assignments", self._rng)
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.take()
                outage.over()
            except Exception as error:  # noqa: BLE001 - a node that confirms nothing looks healthy
                await asyncio.sleep(outage.failed(error))
                self._news.set()

    async def take(self) -> None:
        """Confirm what was named and have it run; give back what cannot run here."""
        async with self._taking:
            session = self._session().id
            ids = list(self._named)
            found = await self._control.store.get(ids) if ids else []
            for id_ in ids:
                self._named.pop(id_, None)
            known = {(job.id, job.token) for job in self._runs.jobs()}
            rows = {row.id: row for row in found if row is not None and _waits(row, session)}
            asked = {id_: row for id_, row in self._unanswered.items() if row.session == session}
            self._unanswered = {}
            rows = asked | {id_: row for id_, row in rows.items() if id_ not in asked}
            wanted = [row for row in rows.values() if (row.id, row.token) not in known]
            fit = [row for row in wanted if self._fits(row)]
            if fit:
                await self._confirm(fit, asked.keys())

    def _fits(self, row: Job) -> bool:
        """Whether it can run here; it is given back if not."""
        if self._runs.closed or self._runs.retired:
            self._runs.give_back([row], "its node takes no more work")
            return False
        return self._runs.has_work(row)

    async def _confirm(self, rows: list[Job], asked: Collection[str]) -> None:
        session = rows[0].session
        try:
            outcomes = await self._control.claims.confirm(rows)
        except StoreError:
            # asked again: only then is it known whether the store has them
            self._unanswered = {row.id: row for row in rows}
            raise
        if session != self._session().id:
            return  # lost before the answer arrived: the work is taken back
        for row, outcome in zip(rows, outcomes, strict=True):
            if _is_confirmed(row, outcome, asked_before=row.id in asked or outcome.resent):
                assert outcome.job is not None
                self._begin(outcome.job)
            elif outcome.outcome == "conflict":
                self.name([row.id])

    def _begin(self, job: Job) -> None:
        if self._runs.closed or self._runs.retired:
            self._runs.give_back([job], "its node takes no more work")
        else:
            self._runs.take_placed([job])

    async def drop_lost(self) -> None:
        """Stop the placed work that was taken away from the session: a unit that is cancelled ends at once in the
        store, and its holder is only woken."""
        session = self._session().id
        ours = {job.id: job for job in self._runs.jobs() if job.queue == PLACE_QUEUE and job.session == session}
        claims = self._runs.claims_of(session)
        ids = [id_ for id_, job in ours.items() if (id_, job.token) in claims]
        if not ids:
            return
        found = await self._control.store.get(ids)
        lost: set[Claim] = {
            (id_, ours[id_].token) for id_, row in zip(ids, found, strict=True) if _is_lost(ours[id_], row)
        }
        lost &= self._runs.claims_of(session)  # it may have ended meanwhile
        if lost:
            self._runs.disown(lost)


def _waits(row: Job, session: str) -> bool:
    return row.status == "dispatched" and row.session == session


def _is_confirmed(row: Job, outcome: Outcome, *, asked_before: bool) -> bool:
    """Whether it may begin: now confirmed, or by a request of this loop whose answer was lost (the loop sent it again,
    or the store did)."""
    if outcome.outcome == "applied":
        return True
    now = outcome.job
    held = now is not None and (now.status, now.session, now.token) == ("running", row.session, row.token)
    return asked_before and held and outcome.outcome == "already_applied"


def _is_lost(ours: Job, row: Job | None) -> bool:
    """Whether another writer took it. A row that was read from a replica may be older than ours."""
    if row is None:
        return True
    return row.token > ours.token or (row.version > ours.version and row.session != ours.session)
