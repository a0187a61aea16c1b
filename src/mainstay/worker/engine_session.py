"""The session of an engine: claims, cancels, and the audit of its claims against the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from ..control import Control
from ..errors import SessionLost, StoreError
from ..model import Job, Session
from ..stores import Query
from .claim_audit import ClaimAudit
from .outage import Outage
from .placed_work import PlacedWork
from .program import Program, offer_of, placed_offer_of
from .runs import Runs

log = logging.getLogger("mainstay.worker")

_AUDIT_S = 5.0
#: how many rows an audit reads
_AUDIT_PAGE = 1000


class EngineSession:
    """The current session. When the store has declared it dead, other sessions have its jobs: they are stopped, nothing
    is written for them, and work goes on under a new session."""

    def __init__(
        self,
        program: Program,
        control: Control,
        runs: Runs,
        session: Session,
        *,
        queues: Sequence[str],
        open_session: Callable[[], Awaitable[Session]] | None,
        rng: random.Random,
    ) -> None:
        self.current = session
        self.queues = tuple(queues)
        self._program = program
        self._control = control
        self._runs = runs
        self._open_session = open_session
        self._rng = rng
        self._audit = ClaimAudit()
        self._renewing = asyncio.Lock()
        self.placed = PlacedWork(control, runs, session=lambda: self.current, rng=rng)

    async def claim(self, n: int) -> list[Job]:
        """Claim jobs and have them run."""
        session = self.current.id
        try:
            jobs = await self._control.claims.claim(self.queues, session, n)
        except SessionLost:
            await self.lose(session)
            return []
        if session != self.current.id or self._renewing.locked():
            return []  # lost before the answer arrived: another session has them
        self._runs.take(jobs)
        return jobs

    async def pulsed(
        self, session: str, *, known: bool, cancelling: Collection[str], assigned: Collection[str] = ()
    ) -> None:
        """The answer of the store to a heartbeat of this session."""
        if not known:
            await self.lose(session)
            return
        if cancelling:
            self._runs.cancel(set(cancelling))
        if self.current.node and session == self.current.id:
            self.placed.name(assigned)
            with contextlib.suppress(StoreError):  # the next heartbeat brings it again
                if assigned and self._runs.closed:
                    await self.placed.take()  # its loop has ended: gives them back
                await self.placed.drop_lost()

    async def lose(self, session: str) -> None:
        """The store has declared the session dead: stop its jobs and open another."""
        async with self._renewing:
            if session != self.current.id or self._runs.closed:
                return
            log.warning("session lost session=%s jobs=%d; stopping them", session, len(self._runs))
            self._runs.disown_all()
            if self._open_session is not None:
                self.current = await self._open_session()

    async def leave(self) -> None:
        """The first step of a drain: get no more placed work, and give back what is assigned and not confirmed. The
        mark names the session itself: no other engine of its worker has to drain."""
        session = self.current
        if not session.node:
            return
        await self._control.store.drain([session.id], by=session.id)
        (pulse,) = await self._control.claims.beat([session.id])
        if pulse.known and pulse.assigned:
            self.placed.name(pulse.assigned)
        await self.placed.take()

    async def listen(self) -> None:
        """Receive cancels and assignments at once, until cancelled. If one is missed, the next heartbeat brings it."""
        outage = Outage("cancels", self._rng)
        while True:
            session = self.current.id
            try:
                async with self._control.store.wake([f"session:{session}"]) as wake:
                    # work may have been placed between the opening of the session and this subscription
                    look = bool(self.current.node)
                    while self.current.id == session:
                        if look or await wake.wait(self._control.settings.poll_s):
                            look = False
                            (pulse,) = await self._control.claims.beat([session])
                            outage.over()
                            await self.pulsed(
                                session, known=pulse.known, cancelling=pulse.cancelling, assigned=pulse.assigned
                            )
            except Exception as error:  # noqa: BLE001 - an engine that hears no cancels looks healthy
                await asyncio.sleep(outage.failed(error))

    async def audit(self) -> None:
        """Compare claims with the store every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(_AUDIT_S)
            with contextlib.suppress(StoreError):  # claims and the ledger log that the store is away
                await self.audit_claims()
                await self.renew_offer()

    async def audit_claims(self) -> None:
        """Give back claims that the store lists and the engine does not know: an answer was lost on its way. Stop jobs
        that run here and that the store does not list: a unit is cancelled at once, and a job that reports nothing
        would never learn of it. A row that is only dispatched is an assignment, which no engine has answered yet."""
        session = self.current.id
        ours = self._runs.claims_of(session)
        page = await self._control.store.find(Query(session=session), limit=_AUDIT_PAGE)
        if session != self.current.id:
            return
        assigned = [row.id for row in page.jobs if row.status == "dispatched"]
        self.placed.name(assigned)
        rows = {(row.id, row.token): row for row in page.jobs if row.status != "dispatched"}
        known = {(job.id, job.token) for job in self._runs.jobs()}
        # neither a job that was claimed since the question nor one that has ended is missing in the list
        ours &= self._runs.claims_of(session)
        unknown, absent = self._audit.compare(rows.keys(), known=known, ours=ours, whole=page.cursor is None)
        if unknown:
            ids = ",".join(job_id for job_id, _ in sorted(unknown)[:5])
            log.error("claims unknown to the engine jobs=%s; giving them back", ids)
            self._runs.give_back([rows[claim] for claim in sorted(unknown)])
        if absent:
            self._runs.disown(absent)

    async def renew_offer(self) -> None:
        """A task may have been added since the session was opened, by a module that a job imported."""
        session = self.current
        if session.offer is None:
            return
        if session.node:
            offer = placed_offer_of(self._program, cores=session.offer.cores)
        else:
            offer = offer_of(self._program, self.queues)
        if offer is None or offer.tasks.keys() == session.offer.tasks.keys():
            return
        (pulse,) = await self._control.claims.beat([session.id])
        if pulse.known and session.id == self.current.id and not self._renewing.locked():
            self.current = msgspec.structs.replace(session, offer=offer)
            await self._control.store.open_session(self.current)
