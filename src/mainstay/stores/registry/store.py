"""JobRegistry: the port on a log in a versioned store."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Literal, Self, TypeVar

import msgspec

from ...clock import Clock, SystemClock
from ...errors import StoreClosed, StoreUnavailable
from ...lifecycle import Chain, Event
from ...model import Job, Leadership, QueueSettings, Schedule, Session
from ..audit_key import admit_fingerprint
from ..durability import Durability, refused
from ..home import Home
from ..judge import given_back
from ..memory import MemoryStore
from ..memory.wake import Hub
from ..port import (
    Answer,
    Audited,
    Change,
    Inserted,
    NewJob,
    Observer,
    Overdue,
    Page,
    Pulse,
    Query,
    Refusal,
    Report,
    Stats,
    Trimmed,
    TrimPolicy,
    Violation,
    Wake,
    Written,
)
from ..session_names import admit_session
from ..versioned import Counts, VersionedStore, WriteUnsure
from .checking import differences
from .files import encoded
from .following import Follower
from .line import Line, Op, Sleep
from .log import Head, Log
from .polling import Poller
from .replica import Replica
from .rolling import Roller
from .sessions import Sessions, name_of

T = TypeVar("T")

#: bytes of one part of a snapshot before it is compressed
PART_BYTES = 4 * 1024 * 1024
POLL_S = 1.0
#: a leader renews its lead when less than this part of it is left; sooner would be a commit for nothing
_RENEWED_AT = 0.7

_DURABILITY = "as durable as the storage: an answer means that the commit is in {place}"


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Where a registry stands."""

    commits: int
    snapshot: int
    """the last commit that the newest snapshot holds; 0: there is none"""
    snapshot_bytes: int
    events: int


class JobRegistry:
    """Jobs in a bucket, a table or a folder. Open one with `open_store("s3://bucket/prefix")`, or on any versioned
    store with `JobRegistry.open`.

    Every process keeps all of it in memory, at one number of the log. To change something is to make the next commit.

    >>> from mainstay.stores.versioned import open_versioned
    >>> async def jobs():
    ...     registry = await JobRegistry.open(lambda: open_versioned("memory:"))
    ...     try:
    ...         return await registry.get(["018bcfe5-6800-7000-8000-000000000001"])
    ...     finally:
    ...         await registry.close()
    >>> asyncio.run(jobs())
    [None]
    """

    def __init__(
        self,
        home: Home,
        store: VersionedStore,
        *,
        url: str,
        clock: Clock,
        chain: Chain,
        rng: random.Random,
        sleep: Sleep,
        poll_s: float,
        part_bytes: int,
        machine: str,
    ) -> None:
        """For `open`; on the loop of its home."""
        self.url = url
        self.clock = clock
        self.chain = chain
        self.durability = _DURABILITY.format(place=store.place)
        self.observer: Observer | None = None
        self._home = home
        self._store = store
        self._hub = Hub()
        self._log = Log(store)
        self._follower = Follower(self._log, lambda: Replica(clock, chain, clock_name=machine), clock, self._hub.notify)
        self._line = Line(self._follower, clock, self._hub.notify, rng=rng, sleep=sleep)
        self._line.on_written = self._tell
        self._roller = Roller(self._follower, clock, self._capture, part_bytes=part_bytes)
        self._line.after_commit = self._roller.committed
        self._sessions = Sessions(store, clock, machine, lambda: self._follower.replica.tables.sessions)
        self._poller = Poller(self._hub, home, self._look, every_s=poll_s)
        self._door = threading.Lock()
        self._closing: Future[None] | None = None
        self._busy: set[asyncio.Task[object]] = set()

    @classmethod
    async def open(
        cls,
        opener: Callable[[], Awaitable[VersionedStore]],
        *,
        url: str = "",
        clock: Clock | None = None,
        chain: Chain | None = None,
        rng: random.Random | None = None,
        sleep: Sleep = asyncio.sleep,
        poll_s: float = POLL_S,
        part_bytes: int = PART_BYTES,
        machine: str | None = None,
        create: bool = True,
    ) -> Self:
        """On the versioned store that `opener` opens; it is called on the loop the registry lives on, and closed with
        it. `poll_s` is how often a process that waits looks for what others did. `part_bytes` is for stores whose
        values must be small. `machine` tells the steady clock of this machine from those of others; None finds out.
        Without `create`, a registry that is not there is an error."""
        home = Home(url or "this registry")
        clock, chain = clock or SystemClock(), chain or Chain()

        async def begin() -> Self:
            store = await opener()
            try:
                made = cls(
                    home,
                    store,
                    url=url or store.place,
                    clock=clock,
                    chain=chain,
                    rng=rng or random.Random(),
                    sleep=sleep,
                    poll_s=poll_s,
                    part_bytes=part_bytes,
                    machine=name_of(clock) if machine is None else machine,
                )
                seen = await (made._log.begin(Head(audit=chain.fingerprint)) if create else made._log.there())
                admit_fingerprint(seen.head.audit, chain.fingerprint, store.place)
                await made._follower.catch_up()
            except BaseException:
                await store.close()
                raise
            return made

        try:
            return await home.run(begin)
        except BaseException:
            await home.close()
            raise

    @property
    def counts(self) -> Counts:
        """What commits cost: how many there were, and how many came too late at first."""
        return self._line.counts

    async def close(self) -> None:
        """Finish what was accepted and let go of everything. Whoever calls it again waits for the same end."""
        with self._door:
            first = self._closing is None
            closing = self._closing = self._closing or Future()
        if first:
            closing.set_running_or_notify_cancel()  # one who waits for it and is cancelled cannot cancel it
            # a caller that is cancelled must not leave it half closed
            await asyncio.shield(asyncio.ensure_future(self._close(closing)))
        else:
            await asyncio.wrap_future(closing)

    async def _close(self, closing: Future[None]) -> None:
        try:
            await self._home.run(self._let_go)
            await self._home.close()
        finally:
            closing.set_result(None)

    async def _let_go(self) -> None:
        await self._poller.close()
        while self._busy:
            await asyncio.wait(tuple(self._busy))
        await self._line.settled()
        await self._roller.settled()
        await self._line.settled()
        await self._store.close()

    async def _at_home(
        self, work: Callable[[], Awaitable[T]], *, unheard: Callable[[T], Awaitable[object]] | None = None
    ) -> T:
        self._check_open()

        async def run() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._busy.add(task)
            try:
                return await work()
            finally:
                self._busy.discard(task)

        async def undo(answer: T) -> object:
            assert unheard is not None
            return await unheard(answer)

        return await self._home.run(run, unheard=undo if unheard else None)

    async def _read(
        self, work: Callable[[MemoryStore], Awaitable[T]], *, prepare: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        return await self._at_home(lambda: self._line.run(Op(work, reads=True, prepare=prepare)))

    async def _write(self, work: Callable[[MemoryStore], Awaitable[T]], *, looks: bool = False) -> T:
        return await self._at_home(lambda: self._line.run(Op(work, looks=looks)))

    def _check_open(self) -> None:
        self._home.check_open()
        if self._closing is not None:
            raise StoreClosed(f"the store on {self._store.place} was closed; open it again")

    def _tell(self, written: Sequence[Written]) -> None:
        if written and self.observer is not None:
            self.observer(written)

    async def _capture(self) -> tuple[int, list[bytes]]:
        async def taken(_: MemoryStore) -> tuple[int, list[bytes]]:
            replica = self._follower.replica
            return replica.number, [encoded(line) for line in replica.lines()]

        return await self._line.run(Op(taken, reads=True))

    async def _look(self) -> bool:
        before = self._follower.replica.number

        async def nothing(_: MemoryStore) -> None:
            pass

        await self._line.run(Op(nothing, reads=True))
        return self._follower.replica.number != before

    # -- jobs ---------------------------------------------------------------------------------

    def durability_of(self, level: Durability) -> str:
        raise refused(level, "how safe a commit is, the storage decides, for all jobs alike")

    async def insert(self, jobs: Sequence[NewJob], *, durability: Durability | None = None) -> list[Inserted]:
        if durability is not None:
            self.durability_of(durability)
        if not jobs:
            return []
        try:
            return await self._write(lambda store: store.insert(jobs))
        except WriteUnsure as error:
            raise StoreUnavailable(
                f"{self._store.place} went away while jobs were submitted, and they may be there: look for them when "
                f"it is back. With an idempotency key, submitting again is safe ({error})"
            ) from error
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"no job was submitted, for {self._store.place} does not answer; submit again when it is back ({error})"
            ) from error

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._read(lambda store: store.get(ids))

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        return await self._read(lambda store: store.find(query, cursor=cursor, limit=limit))

    async def claim(self, queues: Sequence[str], session: str, n: int) -> list[Job]:
        async def give_back(claimed: list[Job]) -> None:
            if claimed:
                await self._line.run(Op(lambda store: self._release(store, claimed)))

        def op() -> Op[list[Job]]:
            return Op(
                lambda store: store.claim(queues, session, n),
                looks=True,
                prepare=lambda: self._sessions.look_at(session),
                unheard=give_back,
            )

        return await self._at_home(lambda: self._line.run(op()), unheard=give_back)

    async def _release(self, store: MemoryStore, claimed: Sequence[Job]) -> None:
        now_ms = self.clock.now_ms()
        await store.apply([given_back(job, now_ms=now_ms, chain=self.chain) for job in claimed])

    async def apply(self, changes: Sequence[Change], *, lead: Leadership | None = None) -> list[Answer]:
        return await self._write(lambda store: store.apply(changes, lead=lead))

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        return await self._write(lambda store: store.report(reports)) if reports else []

    async def due(self, queues: Sequence[str]) -> int | None:
        return await self._read(lambda store: store.due(queues))

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        async def judge() -> None:
            tables = self._follower.replica.tables
            await self._sessions.judge({*tables.rows.held, *tables.leaders.holders()})

        async def work(store: MemoryStore) -> list[Overdue]:
            tables = self._follower.replica.tables
            self._sessions.put_off()
            for holder in tables.leaders.holders():
                if (session := tables.sessions.get(holder)) is not None and session.dead:
                    tables.leaders.depose(holder)
            return await store.overdue(limit)

        return await self._at_home(lambda: self._line.run(Op(work, looks=True, prepare=judge)))

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self._read(lambda store: store.events(job_id, after=after, limit=limit))

    async def refusals(self, job_id: str) -> list[Refusal]:
        return await self._read(lambda store: store.refusals(job_id))

    async def unit_counts(self, parent: str) -> dict[str, int]:
        return await self._read(lambda store: store.unit_counts(parent))

    async def awaited(self, job_id: str) -> list[str]:
        return await self._read(lambda store: store.awaited(job_id))

    async def stats(self) -> Stats:
        return await self._read(lambda store: store.stats(), prepare=lambda: self._sessions.look_at_all(again=False))

    async def trim(self, policy: TrimPolicy, *, lead: Leadership | None = None) -> Trimmed:
        return await self._write(lambda store: store.trim(policy, lead=lead))

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str
    ) -> list[Literal["deleted", "held", "missing"]]:
        return await self._write(lambda store: store.delete(ids, actor=actor, reason=reason))

    # -- sessions and leadership ----------------------------------------------------------------

    async def open_session(self, session: Session) -> None:
        admit_session(session.id)
        await self._at_home(lambda: self._sessions.open(session))

    async def beat(self, sessions: Sequence[str], reports: Sequence[Report] = ()) -> list[Pulse]:
        return await self._at_home(lambda: self._beat(sessions, reports))

    async def _beat(self, sessions: Sequence[str], reports: Sequence[Report]) -> list[Pulse]:
        # the beats alone keep sessions alive; what they have to report is a commit like any other
        await asyncio.gather(*(self._sessions.beat(session) for session in sessions))
        if reports:
            await self._line.run(Op(lambda store: store.report(reports)))
        try:
            return await self._line.run(Op(lambda store: store.beat(sessions), reads=True))
        except StoreUnavailable:
            return [Pulse(session=session, known=True) for session in sessions]

    async def close_session(self, session: str) -> None:
        async def close() -> None:
            await self._sessions.close(session)
            await self._line.run(Op(lambda store: store.close_session(session)))

        await self._at_home(close)

    async def sessions(self) -> list[Session]:
        found = await self._read(lambda store: store.sessions(), prepare=lambda: self._sessions.look_at_all(again=True))
        return self._sessions.shown(found)

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        async def work(store: MemoryStore) -> Leadership:
            held = self._follower.replica.tables.leaders.current(name)
            left_ms = 0 if held is None else held.until_ms - self.clock.lease_ms()
            if held is not None and held.holder == session and left_ms > ttl_s * 1000 * _RENEWED_AT:
                return held
            return await store.lead(name, session, ttl_s)

        return await self._write(work, looks=True)

    async def resign(self, lead: Leadership) -> None:
        await self._write(lambda store: store.resign(lead))

    # -- settings -------------------------------------------------------------------------------

    async def set_queue(self, settings: QueueSettings) -> None:
        await self._write(lambda store: store.set_queue(settings))

    async def queues(self) -> list[QueueSettings]:
        return await self._read(lambda store: store.queues())

    async def set_limit(self, key: str, most: int | None) -> None:
        await self._write(lambda store: store.set_limit(key, most))

    async def limits(self) -> dict[str, int]:
        return await self._read(lambda store: store.limits())

    async def put_schedule(self, schedule: Schedule) -> None:
        await self._write(lambda store: store.put_schedule(schedule))

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return await self._write(lambda store: store.pause_schedule(name, paused=paused))

    async def schedules(self) -> list[Schedule]:
        return await self._read(lambda store: store.schedules())

    async def drop_schedule(self, name: str) -> bool:
        return await self._write(lambda store: store.drop_schedule(name))

    async def tick(
        self, name: str, at_ms: int, jobs: Sequence[NewJob], *, lead: Leadership | None = None
    ) -> list[Inserted] | None:
        return await self._write(lambda store: store.tick(name, at_ms, jobs, lead=lead))

    # -- wake and check -------------------------------------------------------------------------

    def wake(self, topics: Sequence[str]) -> Wake:
        self._check_open()
        return self._poller.subscribe(topics)

    async def audit(self, *, after: str = "", limit: int = 500) -> list[Audited]:
        return await self._read(lambda store: store.audit(after=after, limit=limit))

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:
        found = await self._write(lambda store: store.check(repair=repair, quick=quick))
        return found if quick else [*found, *await self._at_home(self._compare)]

    async def _compare(self) -> list[Violation]:
        return await differences(self._line, self._follower)

    async def mend(self, found: Audited, after: Job, events: Sequence[Event]) -> bool:
        return await self._write(lambda store: store.mend(found, after, events))

    async def about(self) -> About:
        """Where it stands, for whoever runs it."""

        async def look() -> About:
            seen = await self._log.head()
            head = seen.head if seen else Head()

            async def taken(_: MemoryStore) -> About:
                replica = self._follower.replica
                events = sum(len(each) for each in replica.tables.rows.events.values())
                return About(commits=replica.number, snapshot=head.number, snapshot_bytes=head.size, events=events)

            return await self._line.run(Op(taken, reads=True))

        return await self._at_home(look)
