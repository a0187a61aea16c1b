"""The parts of an open registry. All of them run on the registry's own event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

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
from .log import Log, LogHead, NewId
from .poller import Poller
from .replica import Replica
from .sessions import RegistrySessions
from .snapshots import SnapshotWriter

T = TypeVar("T")
Work = Callable[[MemoryStore], Awaitable[T]]
Prepare = Callable[[], Awaitable[None]]


class RegistryInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The size and position of a registry."""

    commits: int
    snapshot: int
    """the last commit in the newest snapshot; 0: there is none"""
    snapshot_bytes: int
    events: int


class RegistryParts:
    """What the operations of the port use."""

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
        writer: str = "",
        new_id: NewId | None = None,
    ) -> None:
        self.home = home
        self.store = store
        self.observer: Observer | None = None
        hub = WakeHub()
        self.log = Log(store, writer=writer, new_id=new_id)
        self.follower = Follower(self.log, lambda: Replica(clock, chain, clock_name=machine), clock, hub.notify)
        self.commits = CommitQueue(self.follower, clock, hub.notify, rng=rng, sleep=sleep)
        self.commits.on_written = self._observe
        self.snapshots = SnapshotWriter(self.follower, clock, self._capture, part_bytes=part_bytes)
        self.commits.after_commit = self.snapshots.committed
        self.sessions = RegistrySessions(self.log, clock, machine, lambda: self.follower.replica.tables.sessions)
        self.poller = Poller(hub, home, self._has_news, every_s=poll_s)
        self._ending = Shutdown()
        self._busy: set[asyncio.Task[object]] = set()

    async def read(self, work: Work[T], *, prepare: Prepare | None = None) -> T:
        """Run an operation that changes nothing, with all commits up to now."""
        return await self.run(lambda: self.commits.run(Op(work, reads=True, prepare=prepare)))

    async def write(self, work: Work[T], *, looks: bool = False) -> T:
        """Run an operation that may change the registry; see `Op`."""
        return await self.run(lambda: self.commits.run(Op(work, looks=looks)))

    async def run(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        unheard: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """Run some work on the registry's loop, from any loop. `unheard` undoes it if its caller was cancelled."""
        self.check_open()

        async def do() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._busy.add(task)
            try:
                return await work()
            finally:
                self._busy.discard(task)

        return await self.home.run(do, unheard=unheard)

    def check_open(self) -> None:
        self.home.check_open()
        if self._ending.begun:
            raise StoreClosed(f"the store on {self.store.place} was closed; open it again")

    async def close(self) -> None:
        """Finish the accepted calls and release everything. A second call waits for the first."""
        await self._ending.reach(self._close)

    async def _close(self) -> None:
        await self.home.run(self._release)
        await self.home.close()

    async def _release(self) -> None:
        await self.poller.close()
        while self._busy:
            await asyncio.wait(tuple(self._busy))
        await self.commits.settled()
        await self.snapshots.settled()
        await self.commits.settled()
        await self.store.close()

    async def about(self) -> RegistryInfo:
        """The size and position of the registry."""

        async def look() -> RegistryInfo:
            seen = await self.log.head()
            head = seen.head if seen else LogHead()
            number, events = await self.commits.at_tip(lambda replica: (replica.number, replica.event_count))
            return RegistryInfo(commits=number, snapshot=head.number, snapshot_bytes=head.size, events=events)

        return await self.run(look)

    def _observe(self, written: Sequence[Written]) -> None:
        if written and self.observer is not None:
            self.observer(written)

    async def _capture(self) -> tuple[int, list[bytes]]:
        return await self.commits.at_tip(lambda replica: (replica.number, [encoded(line) for line in replica.lines()]))

    async def _has_news(self) -> bool:
        before = self.follower.replica.number
        return await self.commits.at_tip(lambda replica: replica.number) != before
