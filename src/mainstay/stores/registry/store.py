"""JobRegistry: the port on a log in a versioned store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

from ...clock import Clock, SystemClock
from ...errors import StoreUnavailable
from ...lifecycle import Chain
from ...model import Job, Leadership, Session
from ..audit_key import admit_fingerprint
from ..change_check import admit_claim, given_back, new_holder
from ..durability import Durability, refused
from ..memory import MemoryStore
from ..port import (
    CALLS,
    AnyChange,
    ChangeResult,
    ClaimReport,
    InsertResult,
    NewJob,
    Observer,
    Overdue,
    Pulse,
    SealedChange,
    Stats,
    Violation,
    Wake,
)
from ..proxy import StoreMethod, StoreProxy
from ..sealed_changes import apply_sealed
from ..session_names import admit_session
from ..store_loop import StoreLoop
from ..versioned import UpdateCounts, VersionedStore, WriteUnsure
from .base import RegistryInfo, RegistryParts
from .check import differences
from .commit_queue import Op, Sleep
from .log import LogHead, NewId
from .sessions import name_of

#: bytes of one part of a snapshot before compression
PART_BYTES = 4 * 1024 * 1024
POLL_S = 1.0
#: a leader renews its lead when less than this part of its time is left; each renewal is a commit
_RENEWED_AT = 0.7

#: calls that change nothing
_READS = (
    "audit",
    "awaited",
    "due",
    "events",
    "find",
    "get",
    "limits",
    "queues",
    "refusals",
    "schedules",
    "unit_counts",
)

_DURABILITY = "as durable as the storage: an answer means that the commit is in {place}"


class JobRegistry(StoreProxy):
    """Jobs in a bucket, a table or a folder. Open one with `open_store("s3://bucket/prefix")`, or on any versioned
    store with `JobRegistry.open`.

    Every process keeps everything in memory, at one number of the log. Each change is the next commit. The calls that
    are not defined here run on the replica's store as they are: `_READS`, and all others as writes.

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

    def __init__(self, base: RegistryParts, *, url: str, clock: Clock, chain: Chain) -> None:
        self.url = url
        self.clock = clock
        self.chain = chain
        self.durability = _DURABILITY.format(place=base.store.place)
        self._base = base
        super().__init__(base.follower.replica.store)
        self._replace(self._operation, [name for name in CALLS if name not in vars(JobRegistry)])

    def __getattr__(self, name: str) -> Any:
        # the replica's store is not passed on: it has more than the port, and may be replaced
        raise AttributeError(name)

    def _operation(self, name: str) -> StoreMethod:
        """A call that the replica's store can make by itself."""
        run: Any = self._base.read if name in _READS else self._base.write

        async def call(*args: Any, **options: Any) -> Any:
            return await run(lambda store: getattr(store, name)(*args, **options))

        return call

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
        writer: str = "",
        new_id: NewId | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        create: bool = True,
    ) -> Self:
        """On the versioned store that `opener` opens. It is called on the registry's own loop; the store is closed with
        the registry. `poll_s` is how often a waiting process looks for commits of others. `part_bytes` is for stores
        with small values. `machine` names the monotonic clock of this machine; None: determine it. Without `create`, a
        missing registry is an error.

        For a simulation: `writer` names this process in its commits (its host and pid by default), `new_id` makes ids
        (random by default), and `loop` is used instead of a loop in a thread."""
        home = StoreLoop(url or "this registry", loop=loop)
        clock, chain = clock or SystemClock(), chain or Chain()

        async def begin() -> Self:
            store = await opener()
            try:
                base = RegistryParts(
                    home,
                    store,
                    clock=clock,
                    chain=chain,
                    rng=rng or random.Random(),
                    sleep=sleep,
                    poll_s=poll_s,
                    part_bytes=part_bytes,
                    machine=name_of(clock) if machine is None else machine,
                    writer=writer,
                    new_id=new_id,
                )
                fresh = LogHead(audit=chain.fingerprint, made_ms=clock.now_ms())
                seen = await (base.log.begin(fresh) if create else base.log.existing_head())
                admit_fingerprint(seen.head.audit, chain.fingerprint, store.place)
                await base.follower.catch_up()
            except BaseException:
                await store.close()
                raise
            return cls(base, url=url or store.place, clock=clock, chain=chain)

        try:
            return await home.run(begin)
        except BaseException:
            await home.close()
            raise

    @property
    def counts(self) -> UpdateCounts:
        """The number of commits, and of those that came too late at first."""
        return self._base.commits.counts

    @property
    def observer(self) -> Observer | None:
        return self._base.observer

    @observer.setter
    def observer(self, value: Observer | None) -> None:
        self._base.observer = value

    async def close(self) -> None:
        await self._base.close()

    async def about(self) -> RegistryInfo:
        """Its size and position, for an operator."""
        return await self._base.about()

    # -- jobs ---------------------------------------------------------------------------------

    def durability_of(self, level: Durability) -> str:
        raise refused(level, "the storage decides how durable a commit is, for all jobs alike")

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        if durability is not None:
            self.durability_of(durability)
        if not jobs and lead is None:
            return []
        place = self._base.store.place
        try:
            return await self._base.write(lambda store: store.insert(jobs, lead=lead))
        except WriteUnsure as error:
            raise StoreUnavailable(
                f"{place} became unreachable while jobs were submitted, and they may exist: look for them when it is "
                f"back. With an idempotency key, submitting again is safe ({error})"
            ) from error
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"no job was submitted: {place} does not answer; submit again when it is back ({error})"
            ) from error

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        async def give_back(claimed: list[Job]) -> None:
            if claimed:
                await self._base.commits.run(Op(lambda store: self._release(store, claimed)))

        # a claim with a mark is sent again, and then gets these jobs
        unheard = give_back if mark is None else None

        def op() -> Op[list[Job]]:
            return Op(
                lambda store: store.claim(queues, session, n, mark=mark),
                looks=True,
                prepare=lambda: self._base.sessions.look_at(session),
                unheard=unheard,
            )

        admit_claim(queues)
        return await self._base.run(lambda: self._base.commits.run(op()), unheard=unheard)

    async def _release(self, store: MemoryStore, claimed: Sequence[Job]) -> None:
        now_ms = self.clock.now_ms()
        await store.apply([given_back(job, now_ms=now_ms, chain=self.chain) for job in claimed])

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        async def write(sealed: list[SealedChange]) -> list[ChangeResult]:
            # sealed once, and decided on as often as other processes commit first
            return await self._base.run(lambda: self._base.commits.run(op(sealed)))

        def op(sealed: list[SealedChange]) -> Op[list[ChangeResult]]:
            holders = {holder for change in sealed if (holder := new_holder(change)) is not None}
            return Op(
                lambda store: store.apply(sealed, lead=lead, together=together),
                prepare=(lambda: self._base.sessions.look_again_at(holders)) if holders else None,
            )

        return await apply_sealed(changes, self.chain, write, together=together)

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        return await self._base.write(lambda store: store.report(reports)) if reports else []

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        async def judge() -> None:
            tables = self._base.follower.replica.tables
            held = dict.fromkeys([*tables.rows.held, *tables.leaders.holders()])
            await self._base.sessions.judge(held, tables.marks.keys())

        async def work(store: MemoryStore) -> list[Overdue]:
            tables = self._base.follower.replica.tables
            self._base.sessions.postpone_silence()
            for holder in tables.leaders.holders():
                if (session := tables.sessions.get(holder)) is not None and session.dead:
                    tables.leaders.depose(holder)
            for ended in [session for session in tables.marks if session not in tables.sessions]:
                del tables.marks[ended]
            return await store.overdue(limit)

        return await self._base.run(lambda: self._base.commits.run(Op(work, looks=True, prepare=judge)))

    async def stats(self) -> Stats:
        return await self._base.read(
            lambda store: store.stats(), prepare=lambda: self._base.sessions.look_at_all(again=False)
        )

    # -- sessions and leadership ----------------------------------------------------------------

    async def open_session(self, session: Session) -> None:
        admit_session(session.id)
        await self._base.run(lambda: self._base.sessions.open(session))

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        return await self._base.run(lambda: self._beat(sessions, reports))

    async def _beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport]) -> list[Pulse]:
        # the heartbeats alone keep sessions alive; their reports are a commit like any other
        await asyncio.gather(*(self._base.sessions.beat(session) for session in sessions))
        if reports:
            await self._base.commits.run(Op(lambda store: store.report(reports)))
        try:
            return await self._base.commits.run(Op(lambda store: store.beat(sessions), reads=True))
        except StoreUnavailable:
            return [Pulse(session=session, known=True) for session in sessions]

    async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
        async def ask() -> list[bool]:
            return [await self._base.sessions.drain(session, by=by) for session in sessions]

        return await self._base.run(ask)

    async def close_session(self, session: str, *, lead: Leadership | None = None) -> None:
        async def fence(_: MemoryStore) -> None:
            self._base.follower.replica.tables.leaders.fence(lead, self.clock.lease_ms())

        async def close() -> None:
            if lead is not None:
                # its document is not in the log: the leadership is compared just before it is removed
                await self._base.commits.run(Op(fence, reads=True))
            await self._base.sessions.close(session)
            await self._base.commits.run(Op(lambda store: store.close_session(session)))

        await self._base.run(close)

    async def sessions(self) -> list[Session]:
        sessions = await self._base.read(
            lambda store: store.sessions(), prepare=lambda: self._base.sessions.look_at_all(again=True)
        )
        return self._base.sessions.shown(sessions)

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        async def work(store: MemoryStore) -> Leadership:
            current = self._base.follower.replica.tables.leaders.current(name)
            left_ms = 0 if current is None else current.until_ms - self.clock.lease_ms()
            if current is not None and current.holder == session and left_ms > ttl_s * 1000 * _RENEWED_AT:
                return current
            return await store.lead(name, session, ttl_s)

        return await self._base.write(work, looks=True)

    # -- wake and check -------------------------------------------------------------------------

    def wake(self, topics: Sequence[str]) -> Wake:
        self._base.check_open()
        return self._base.poller.subscribe(topics)

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:
        violations = await self._base.write(lambda store: store.check(repair=repair, quick=quick))
        return violations if quick else [*violations, *await self._base.run(self._compare)]

    async def _compare(self) -> list[Violation]:
        return await differences(self._base.commits, self._base.follower)
