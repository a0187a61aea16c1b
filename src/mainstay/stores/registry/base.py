"""The parts of an open registry, and the way to them: all live on the loop of its home."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from ...clock import Clock
from ...errors import StoreClosed
from ...lifecycle import Chain
from ..memory import MemoryStore
from ..memory.wake import WakeHub
from ..port import Observer, Written
from ..shutdown import Shutdown
from ..store_loop import StoreLoop
from ..versioned import VersionedStore
from .commit_queue import CommitQueue, Op, Sleep
from .files import encoded
from .follower import Follower
from .log import Log, LogHead
from .poller import Poller
from .replica import Replica
from .sessions import RegistrySessions
from .snapshots import SnapshotWriter

T = TypeVar("T")
Work = Callable[[MemoryStore], Awaitable[T]]
Prepare = Callable[[], Awaitable[None]]


class RegistryInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where a registry stands."""

    commits: int
    snapshot: int
    """the last commit that the newest snapshot holds; 0: there is none"""
    snapshot_bytes: int
    events: int


class RegistryParts:
    """What the operations of the port are made of."""

    def __init__(
        self,
        home: StoreLoop,
        store: VersionedStore,
        *,
        clock: Clock,
        chain: Chain,
        rng: random.Random,
        sleep: Sleep,
        poll_s: float,
        part_bytes: int,
        machine: str,
    ) -> None:
        self.home = home
        self.store = store
        self.observer: Observer | None = None
        hub = WakeHub()
        self.log = Log(store)
        self.follower = Follower(self.log, lambda: Replica(clock, chain, clock_name=machine), clock, hub.notify)
        self.line = CommitQueue(self.follower, clock, hub.notify, rng=rng, sleep=sleep)
        self.line.on_written = self._tell
        self.roller = SnapshotWriter(self.follower, clock, self._capture, part_bytes=part_bytes)
        self.line.after_commit = self.roller.committed
        self.sessions = RegistrySessions(self.log, clock, machine, lambda: self.follower.replica.tables.sessions)
        self.poller = Poller(hub, home, self._look, every_s=poll_s)
        self._ending = Shutdown()
        self._busy: set[asyncio.Task[object]] = set()

    async def read(self, work: Work[T], *, prepare: Prepare | None = None) -> T:
        """Something that changes nothing, on all that was committed when it was asked for."""
        return await self.run(lambda: self.line.run(Op(work, reads=True, prepare=prepare)))

    async def write(self, work: Work[T], *, looks: bool = False) -> T:
        """Something that may change something; see `Op`."""
        return await self.run(lambda: self.line.run(Op(work, looks=looks)))

    async def run(
        self, work: Callable[[], Awaitable[T]], *, unheard: Callable[[T], Awaitable[object]] | None = None
    ) -> T:
        """Do some work at home, from whatever loop runs here."""
        self.check_open()

        async def do() -> T:
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

        return await self.home.run(do, unheard=undo if unheard else None)

    def check_open(self) -> None:
        self.home.check_open()
        if self._ending.begun:
            raise StoreClosed(f"the store on {self.store.place} was closed; open it again")

    async def close(self) -> None:
        """Finish what was accepted and let go of everything. Whoever calls it again waits for the same end."""
        await self._ending.reach(self._close)

    async def _close(self) -> None:
        await self.home.run(self._let_go)
        await self.home.close()

    async def _let_go(self) -> None:
        await self.poller.close()
        while self._busy:
            await asyncio.wait(tuple(self._busy))
        await self.line.settled()
        await self.roller.settled()
        await self.line.settled()
        await self.store.close()

    async def about(self) -> RegistryInfo:
        """Where it stands."""

        async def look() -> RegistryInfo:
            seen = await self.log.head()
            head = seen.head if seen else LogHead()

            async def taken(_: MemoryStore) -> RegistryInfo:
                replica = self.follower.replica
                events = sum(len(each) for each in replica.tables.rows.events.values())
                return RegistryInfo(
                    commits=replica.number, snapshot=head.number, snapshot_bytes=head.size, events=events
                )

            return await self.line.run(Op(taken, reads=True))

        return await self.run(look)

    def _tell(self, written: Sequence[Written]) -> None:
        if written and self.observer is not None:
            self.observer(written)

    async def _capture(self) -> tuple[int, list[bytes]]:
        async def taken(_: MemoryStore) -> tuple[int, list[bytes]]:
            replica = self.follower.replica
            return replica.number, [encoded(line) for line in replica.lines()]

        return await self.line.run(Op(taken, reads=True))

    async def _look(self) -> bool:
        before = self.follower.replica.number

        async def nothing(_: MemoryStore) -> None:
            pass

        await self.line.run(Op(nothing, reads=True))
        return self.follower.replica.number != before
