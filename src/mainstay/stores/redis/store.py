"""RedisStore: the port on Redis or Valkey."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Self, TypeVar

from ...clock import Clock, SystemClock
from ...errors import StoreClosed
from ...lifecycle import Chain, Event
from ...model import Job, Leadership, QueueSettings, Schedule, Session
from ..change_check import admit_claim
from ..durability import Durability
from ..port import (
    AnyChange,
    Audited,
    ChangeResult,
    ClaimReport,
    Deletion,
    InsertResult,
    NewJob,
    Observer,
    Overdue,
    Page,
    Pulse,
    Query,
    RefusedWrite,
    Stats,
    Trimmed,
    TrimPolicy,
    Violation,
    Wake,
)
from ..sealed_changes import apply_sealed
from ..server_clock import ServerClock
from ..session_names import admit_session
from ..shutdown import Shutdown
from ..store_loop import StoreLoop
from . import audit, changes as writing, directory, queries, retention, selection, server_check, waits
from .address import RedisAddress
from .base import RedisBase
from .connection import RedisServer
from .liveness import AGAIN_S, SessionLink
from .wake import RedisListener

log = logging.getLogger("mainstay.stores.redis")

T = TypeVar("T")


class RedisStore:
    """Jobs on a Redis or Valkey server. Open it with `open_store("redis://host")`.

    A session whose process has ended is detected by its connection, any other dead session by its lease.
    """

    def __init__(self, url: str, home: StoreLoop, base: RedisBase, facts: server_check.RedisServerFacts) -> None:
        self.url = url
        self.clock: Clock = base.clock
        self.chain = base.chain
        self.durability = facts.durability_at(base.server.address.durability)
        self.findings: tuple[str, ...] = ()
        self._facts = facts
        self._home = home
        self._base = base
        self._listener = RedisListener(base.server, home, lambda args: base.scripts.run("wake", args))
        self._link = SessionLink(base.server, lambda sessions: directory.link(base, sessions))
        self.look_again_s: float | None = None
        self._claiming: dict[str, asyncio.Lock] = {}
        self._ending = Shutdown()
        self._busy: set[asyncio.Task[Any]] = set()
        """running calls; used on the store's own loop"""

    @classmethod
    async def open(cls, url: str, address: RedisAddress, *, clock: Clock, chain: Chain) -> Self:
        """Connect, and refuse a server that is not safe to use."""
        home = StoreLoop(address.shown)
        ours = ServerClock() if isinstance(clock, SystemClock) else clock

        async def connect() -> tuple[RedisBase, server_check.RedisServerFacts, tuple[str, ...]]:
            server = RedisServer(address)
            try:
                found = await server.call(server_check.facts)
                server_check.admit(found, address)
                if address.durability is not None:
                    found.check_forced(address.durability)
                if isinstance(ours, ServerClock):
                    await server.hear(ours)
                base = RedisBase(server, clock=ours, chain=chain)
                base.forced = address.durability is not None and not found.forces
                await directory.admit_namespace(base)
                return base, found, await audit.fast_findings(base)
            except BaseException:
                await server.close()
                raise

        try:
            base, facts, findings = await home.run(connect)
        except BaseException:
            await home.close()
            raise
        store = cls(url, home, base, facts)
        store.findings = findings
        for finding in findings:
            log.warning("%s: %s; run: mainstay check", address.shown, finding)
        return store

    @property
    def observer(self) -> Observer | None:
        return self._base.observer

    @observer.setter
    def observer(self, value: Observer | None) -> None:
        self._base.observer = value

    async def close(self) -> None:
        """Finish the accepted calls and release everything. A second call waits for the first."""
        await self._ending.reach(self._close)

    async def _close(self) -> None:
        await self._home.run(self._release)
        await self._home.close()

    async def _release(self) -> None:
        while self._busy:
            await asyncio.wait(tuple(self._busy))
        await self._link.close()
        await self._listener.close()
        await self._base.server.close()

    async def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run some work on the store's own loop, after all earlier subscriptions."""
        self._check_open()
        return await self._home.run(lambda: self._do(work))

    async def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            await self._listener.settled()
            return await work()
        finally:
            self._busy.discard(task)

    def _check_open(self) -> None:
        self._home.check_open()
        if self._ending.begun:
            raise StoreClosed(f"the store on {self._base.server.address.shown} was closed; open it again")

    # -- jobs ---------------------------------------------------------------------------------

    def durability_of(self, level: Durability) -> str:
        self._facts.check_forced(level)
        return self._facts.durability_at(level)

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        if durability is not None:
            self._facts.check_forced(durability)
        forced = durability is not None and not self._facts.forces
        if not jobs and lead is None:
            return []
        return await self._run(lambda: writing.insert(self._base, jobs, lead, forced=forced))

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._run(lambda: self._base.jobs(ids))

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        return await self._run(lambda: queries.find(self._base, query, cursor, limit))

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        admit_claim(queues)

        async def work() -> list[Job]:
            # one at a time: a session records only its last claim, to repeat its reply
            async with self._claiming.setdefault(session, asyncio.Lock()):
                return await selection.claim_jobs(self._base, queues, session, n, mark)

        async def give_back(claimed: list[Job]) -> None:
            await self._do(lambda: selection.give_back(self._base, claimed))

        self._check_open()
        # a claim with a mark is sent again, and then gets these jobs
        return await self._home.run(lambda: self._do(work), unheard=give_back if mark is None else None)

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        return await apply_sealed(
            changes,
            self.chain,
            lambda sealed: self._run(lambda: writing.apply_changes(self._base, sealed, lead, together=together)),
            together=together,
        )

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        return await self._run(lambda: writing.report(self._base, reports)) if reports else []

    async def due(self, queues: Sequence[str]) -> int | None:
        return await self._run(lambda: queries.due(self._base, queues))

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        jobs, suspected = await self._run(lambda: directory.overdue(self._base, limit))
        self.look_again_s = AGAIN_S if suspected else None
        return jobs

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self._run(lambda: self._base.events(job_id, after, limit))

    async def refusals(self, job_id: str) -> list[RefusedWrite]:
        return await self._run(lambda: queries.refusals(self._base, job_id))

    async def awaited(self, job_id: str) -> list[str]:
        return await self._run(lambda: waits.awaited(self._base, job_id))

    async def unit_counts(self, parent: str) -> dict[str, int]:
        return await self._run(lambda: queries.unit_counts(self._base, parent))

    async def stats(self) -> Stats:
        return await self._run(lambda: queries.stats(self._base, self.findings))

    async def trim(self, policy: TrimPolicy, *, lead: Leadership | None = None) -> Trimmed:
        return await self._run(lambda: retention.trim(self._base, policy, lead))

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        return await self._run(lambda: retention.delete(self._base, ids, actor=actor, reason=reason, versions=versions))

    # -- sessions and leadership ----------------------------------------------------------------

    async def open_session(self, session: Session) -> None:
        admit_session(session.id)

        async def work() -> None:
            await directory.open_session(self._base, session)
            if session.pid == os.getpid() and not session.standing:
                self._link.hold(session.id)

        await self._run(work)

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        async def work() -> list[Pulse]:
            pulses = await directory.beat(self._base, sessions, reports)
            if sessions:
                self._link.beat([pulse.session for pulse in pulses if pulse.known])
            return pulses

        return await self._run(work)

    async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
        return await self._run(lambda: directory.drain(self._base, sessions, by))

    async def close_session(self, session: str, *, lead: Leadership | None = None) -> None:
        async def work() -> None:
            await directory.close_session(self._base, session, lead)
            self._link.release(session)

        await self._run(work)
        self._claiming.pop(session, None)

    async def sessions(self) -> list[Session]:
        return await self._run(lambda: directory.sessions(self._base))

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        return await self._run(lambda: directory.lead(self._base, name, session, ttl_s))

    async def resign(self, lead: Leadership) -> None:
        await self._run(lambda: directory.resign(self._base, lead))

    # -- settings -------------------------------------------------------------------------------

    async def set_queue(self, settings: QueueSettings) -> None:
        await self._run(lambda: directory.set_queue(self._base, settings))

    async def queues(self) -> list[QueueSettings]:
        return await self._run(lambda: directory.queues(self._base))

    async def set_limit(self, key: str, most: int | None) -> None:
        await self._run(lambda: directory.set_limit(self._base, key, most))

    async def limits(self) -> dict[str, int]:
        return await self._run(lambda: directory.limits(self._base))

    async def put_schedule(self, schedule: Schedule) -> None:
        await self._run(lambda: directory.put_schedule(self._base, schedule))

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return await self._run(lambda: directory.pause_schedule(self._base, name, paused=paused))

    async def schedules(self) -> list[Schedule]:
        return await self._run(lambda: directory.schedules(self._base))

    async def drop_schedule(self, name: str) -> bool:
        return await self._run(lambda: directory.drop_schedule(self._base, name))

    async def tick(
        self, name: str, at_ms: int, jobs: Sequence[NewJob], *, lead: Leadership | None = None
    ) -> list[InsertResult] | None:
        return await self._run(lambda: directory.tick(self._base, name, at_ms, jobs, lead))

    # -- wake and check -------------------------------------------------------------------------

    def wake(self, topics: Sequence[str]) -> Wake:
        self._check_open()
        return self._listener.subscribe(topics)

    async def audit(self, *, after: str = "", limit: int = 500) -> list[Audited]:
        return await self._run(lambda: audit.audit(self._base, after, limit))

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:
        return await self._run(lambda: audit.check(self._base, repair=repair, quick=quick))

    async def mend(self, found: Audited, after: Job, events: Sequence[Event]) -> bool:
        return await self._run(lambda: audit.mend(self._base, found, after, events))
