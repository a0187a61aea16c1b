"""PostgresStore: the port on a PostgreSQL database, for many machines."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import asyncpg

from ...clock import Clock
from ...errors import InvalidInput, MainstayError
from ...lifecycle import Chain, Event
from ...model import Job, Leadership, QueueSettings, Schedule, Session
from ..change_check import admit_claim, given_back
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
    Written,
)
from ..routes import MOST_CLAIMS, Offers
from ..sealed_changes import apply_sealed
from ..session_names import admit_session
from ..shutdown import Shutdown
from ..store_loop import StoreLoop
from .check import audit
from .connection.address import PostgresAddress
from .connection.durability import SETTINGS, promised
from .connection.engine import PostgresEngine, PostgresTx
from .connection.errors import translated
from .connection.liveness import PostgresSessionLocks
from .connection.permanent import PermanentConnection
from .connection.pool import hang_up
from .connection.timeouts import AGAIN_S
from .directory import tables
from .directory.heartbeats import Heartbeats
from .read import lookup, queries
from .rows.names import admit_jobs, admit_names
from .schema.migration import admit, admit_key, first_connection
from .wake.subscriptions import Board
from .write import changes as writing, retention, selection, waits
from .write.insert_queue import InsertQueue
from .write.statements import fence

log = logging.getLogger("mainstay.stores.postgres")

T = TypeVar("T")

_PASSING = (
    "A server that crashes may lose the claims of its last moments: those jobs are claimed again, and only the claim "
    "that it has stored can end a job"
)


class PostgresStore:
    """Jobs in one schema of a PostgreSQL database. Open it with `open_store("postgresql://user@host/database")`."""

    def __init__(
        self, url: str, address: PostgresAddress, home: StoreLoop, engine: PostgresEngine, chain: Chain
    ) -> None:
        """On the home loop."""
        self.url = url
        self.clock: Clock = engine.clock
        self.chain = chain
        self.observer: Observer | None = None
        self.durability = ""
        self.findings: tuple[str, ...] = ()
        self.look_again_s: float | None = None
        self._settings: Mapping[str, str] = {}
        self._address = address
        self._home = home
        self._engine = engine
        self._insert_queue = InsertQueue(engine, chain)
        self._line = PermanentConnection(address) if address.listen else None
        # the locks first: a session without its lock soon counts as dead
        self._locks = PostgresSessionLocks(self._line)
        self._board = Board(engine, home, self._line)
        self._beats = Heartbeats(engine)
        self._claiming: dict[str, asyncio.Lock] = {}
        self._offers = Offers()
        self._places: retention.Places = {}
        self._ending = Shutdown()
        engine.on_commit = self._after_commit
        engine.ringer = self._board.ringer

    @classmethod
    async def open(cls, url: str, address: PostgresAddress, *, clock: Clock, chain: Chain) -> PostgresStore:
        """Connect, and refuse a database of another version or another key."""
        home = StoreLoop(address.shown)
        try:
            return await home.run(lambda: cls._opened(url, address, home, clock, chain))
        except BaseException:
            await home.close()
            raise

    @classmethod
    async def _opened(
        cls, url: str, address: PostgresAddress, home: StoreLoop, clock: Clock, chain: Chain
    ) -> PostgresStore:
        settings = await _admit_database(address, chain)
        engine = PostgresEngine(address, clock)
        try:
            store = cls(url, address, home, engine, chain)
            store._settings = settings
            store.durability = f"{promised(address.durability, settings)}. {_PASSING}"
            store.findings = await audit.fast_findings(engine)
        except BaseException:
            await engine.close()
            raise
        for finding in store.findings:
            log.warning("%s: %s; run: mainstay check", address.shown, finding)
        return store

    async def close(self) -> None:
        """Finish all accepted calls and release everything. A second call waits for the same end."""
        await self._ending.reach(self._release)

    async def _release(self) -> None:
        try:
            await self._home.run(self._hang_up)
        finally:
            await self._home.close()

    async def _hang_up(self) -> None:
        await self._board.close()
        await self._locks.close()
        if self._line is not None:
            await self._line.close()
        await self._engine.close()

    def durability_of(self, level: Durability) -> str:
        return promised(level, self._settings)

    # -- jobs ---------------------------------------------------------------------------------

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        if not jobs and lead is None:
            return []
        try:
            return await self._home.run(lambda: self._insert_queue.insert(jobs, durability=durability, lead=lead))
        except InvalidInput:
            admit_jobs(jobs)
            raise

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._look(lambda: lookup.jobs_by_id(self._engine, ids, self.chain))

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        return await self._look(lambda: queries.find(self._engine, query, cursor, limit, self.chain))

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        admit_names(queues=queues, session=session, mark=mark)
        admit_claim(queues)
        # a claim with a mark is sent again, and then gets these jobs
        unheard = self._give_back if mark is None else None
        return await self._home.run(lambda: self._claim(queues, session, n, mark), unheard=unheard)

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        return await apply_sealed(
            changes,
            self.chain,
            lambda sealed: self._home.run(
                lambda: writing.apply(self._engine, sealed, self.chain, lead=lead, together=together)
            ),
            together=together,
        )

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        return await self._home.run(lambda: self._beats.report(reports))

    async def due(self, queues: Sequence[str]) -> int | None:
        return await self._look(lambda: queries.due(self._engine, queues))

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        found, suspected = await self._home.run(lambda: tables.overdue(self._engine, limit, self.chain))
        self.look_again_s = AGAIN_S if suspected else None
        return found

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self._look(
            lambda: lookup.events_of(self._engine, job_id, after=after, limit=limit, chain=self.chain)
        )

    async def refusals(self, job_id: str) -> list[RefusedWrite]:
        return await self._look(lambda: queries.refusals(self._engine, job_id))

    async def awaited(self, job_id: str) -> list[str]:
        return await self._look(lambda: waits.awaited(self._engine, job_id))

    async def unit_counts(self, parent: str) -> dict[str, int]:
        return await self._look(lambda: queries.unit_counts(self._engine, parent))

    async def stats(self) -> Stats:
        return await self._look(lambda: queries.stats(self._engine, self.findings))

    async def trim(self, policy: TrimPolicy, *, lead: Leadership | None = None) -> Trimmed:
        async def run(tx: PostgresTx) -> tuple[Trimmed, retention.Places]:
            await fence(tx, lead)
            return await retention.trim(tx, policy, self._places)

        trimmed, self._places = await self._home.run(lambda: self._engine.transact(run))
        return trimmed

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        admit_names(actor=actor)
        return await self._transact(
            lambda tx: retention.delete(tx, ids, actor=actor, reason=reason, versions=versions, chain=self.chain)
        )

    # -- sessions and leadership ----------------------------------------------------------------

    async def open_session(self, session: Session) -> None:
        admit_session(session.id)
        await self._home.run(lambda: self._open_session(session))

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        admit_names(sessions=sessions)
        return await self._home.run(lambda: self._beat(sessions, reports))

    async def _beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport]) -> list[Pulse]:
        pulses = await self._beats.beat(sessions, reports)
        if sessions:
            self._locks.witness([pulse.session for pulse in pulses if pulse.known])
        return pulses

    async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
        admit_names(sessions=sessions)
        return await self._home.run(lambda: tables.drain(self._engine, sessions, by))

    async def close_session(self, session: str, *, lead: Leadership | None = None) -> None:
        await self._home.run(lambda: self._close_session(session, lead))

    async def sessions(self) -> list[Session]:
        return await self._look(lambda: tables.sessions(self._engine))

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        return await self._home.run(lambda: tables.lead(self._engine, name, session, ttl_s))

    async def resign(self, lead: Leadership) -> None:
        await self._home.run(lambda: tables.resign(self._engine, lead))

    # -- settings -------------------------------------------------------------------------------

    async def set_queue(self, settings: QueueSettings) -> None:
        admit_names(queue=settings.name, set_by=settings.set_by)
        await self._transact(lambda tx: tables.set_queue(tx, settings))

    async def queues(self) -> list[QueueSettings]:
        return await self._look(lambda: tables.queues(self._engine))

    async def set_limit(self, key: str, most: int | None) -> None:
        admit_names(key=key)
        await self._transact(lambda tx: tables.set_limit(tx, key, most))

    async def limits(self) -> dict[str, int]:
        return await self._look(lambda: tables.limits(self._engine))

    async def put_schedule(self, schedule: Schedule) -> None:
        admit_names(schedule=schedule.name)
        await self._home.run(lambda: tables.put_schedule(self._engine, schedule))

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        admit_names(schedule=name)
        return await self._home.run(lambda: tables.pause_schedule(self._engine, name, paused=paused))

    async def schedules(self) -> list[Schedule]:
        return await self._look(lambda: tables.schedules(self._engine))

    async def drop_schedule(self, name: str) -> bool:
        admit_names(schedule=name)
        return await self._home.run(lambda: tables.drop_schedule(self._engine, name))

    async def tick(
        self, name: str, at_ms: int, jobs: Sequence[NewJob], *, lead: Leadership | None = None
    ) -> list[InsertResult] | None:
        async def run(tx: PostgresTx) -> list[InsertResult] | None:
            await fence(tx, lead)
            return await tables.tick(tx, name, at_ms, jobs, self.chain)

        return await self._transact(run)

    # -- wake and check -------------------------------------------------------------------------

    def wake(self, topics: Sequence[str]) -> Wake:
        self._home.check_open()
        return self._board.subscribe(topics)

    async def audit(self, *, after: str = "", limit: int = 500) -> list[Audited]:
        return await self._home.run(lambda: self._engine.read(lambda db: audit.audit(db, after, limit, self.chain)))

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:  # noqa: ARG002 - as good
        return await self._home.run(lambda: audit.check(self._engine, self.chain, repair=repair))

    async def mend(self, found: Audited, after: Job, events: Sequence[Event]) -> bool:
        return await self._transact(lambda tx: audit.mend(tx, found, after, events, self.chain))

    # -- on the home loop -----------------------------------------------------------------------

    async def _look(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a read. Earlier subscriptions must be registered on the server before it begins."""

        async def read() -> T:
            await self._board.ready()
            return await work()

        return await self._home.run(read)

    async def _transact(self, run: Callable[[PostgresTx], Awaitable[T]]) -> T:
        return await self._home.run(lambda: self._engine.transact(run))

    async def _open_session(self, session: Session) -> None:
        # the lock first: a stored session without one would look dead; a standing one belongs to no process
        locked = session.pid == os.getpid() and not session.standing and await self._locks.hold(session.id)
        await tables.open_session(self._engine, session, locked=locked)
        self._offers.opened(session)

    async def _close_session(self, session: str, lead: Leadership | None) -> None:
        await tables.close_session(self._engine, session, lead=lead)
        self._offers.closed(session)
        await self._locks.release(session)
        self._claiming.pop(session, None)

    async def _claim(self, queues: Sequence[str], session: str, n: int, mark: str | None) -> list[Job]:
        # one at a time for a session: the server stores its last claim, in case the result is lost
        await self._board.ready()
        async with self._claiming.setdefault(session, asyncio.Lock()):
            for at in range(MOST_CLAIMS):
                jobs, routed = await selection.claim_jobs(
                    self._engine,
                    queues,
                    session,
                    n,
                    selection.ClaimCall(os.urandom(12).hex(), mark, continues=at > 0),
                    self.chain,
                    self._offers,
                    observed=self.observer is not None,
                )
                if jobs or not routed:
                    return jobs
            return []

    async def _give_back(self, claimed: list[Job]) -> None:
        """Release the jobs of a claim whose caller was cancelled."""
        changes = [given_back(job, now_ms=self.clock.now_ms(), chain=self.chain) for job in claimed]
        try:
            await writing.apply(self._engine, changes, self.chain)
        except MainstayError as error:
            log.warning("%s: the jobs of a cancelled claim were not released: %s", self._address.shown, error)

    def _after_commit(self, written: Sequence[Written], woken: Counter[str]) -> None:
        """The waiting subscribers come first."""
        try:
            self._board.committed(written, woken)
        finally:
            if self.observer is not None and written:
                self.observer(written)


async def _admit_database(address: PostgresAddress, chain: Chain) -> dict[str, str]:
    """Check the database before anything is written to it, migrate it if that is allowed, and read its settings."""
    db = await first_connection(address)
    try:
        await admit(db, address)
        await admit_key(db, chain.fingerprint, address)
        rows = await db.fetch("SELECT name, setting FROM pg_settings WHERE name = ANY ($1::text[])", list(SETTINGS))
        return dict(map(tuple, rows))
    except asyncpg.PostgresError as error:
        raise translated(error, address.shown) from error
    finally:
        await hang_up(db)
