"""The queue of operations: run on the replica one after the other, committed together.

Operations that arrive during a commit wait for the next one and share it. Each has its own result, or its own error. If
another process makes the commit first, the changes here are undone, its commit is applied, and all is decided again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, Generic, TypeVar

from ...clock import Clock
from ...errors import MainstayError, PayloadTooLarge, TooManyConflicts
from ..memory import MemoryStore
from ..port import Written
from ..versioned import UpdateCounts, WriteUnsure
from .files import encoded
from .follower import Follower, Notify
from .log import Commit
from .pace import CommitPace
from .replica import Replica

log = logging.getLogger("mainstay.stores.registry")

T = TypeVar("T")

#: a commit is given up after this number of lost attempts, and not before this time: beside many writers a few lost
#: attempts are normal
TRIES = 5
PATIENCE_S = 30.0
#: the longest wait before the second attempt, doubled before each further one, up to a maximum
BASE_S, MOST_S = 0.1, 2.0
_MOST_AT_ONCE = 500
_MOST_BREATHS = 50

Sleep = Callable[[float], Awaitable[object]]


class Op(Generic[T]):
    """One operation: `work` on the replica's store. It may run several times, and must not wait."""

    def __init__(
        self,
        work: Callable[[MemoryStore], Awaitable[T]],
        *,
        reads: bool = False,
        looks: bool = False,
        prepare: Callable[[], Awaitable[None]] | None = None,
        unheard: Callable[[T], Awaitable[object]] | None = None,
    ) -> None:
        self.work = work
        self.reads = reads
        """it changes nothing, and needs all commits"""
        self.looks = looks
        """it should see the latest commits of others"""
        self.prepare = prepare
        """reads what it needs beside the log, each time before it runs"""
        self.unheard = unheard
        """undoes it if it turns out to be committed after its caller got an outage"""
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.result: T
        self.error: Exception | None = None

    def resolve(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class CommitQueue:
    """The operations of one process. All of it on one event loop."""

    def __init__(
        self, follower: Follower, clock: Clock, notify: Notify, *, rng: random.Random, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.counts = UpdateCounts()
        self.on_written: Callable[[Sequence[Written]], None] = lambda _: None
        self.after_commit: Callable[[int], None] = lambda _: None
        self._follower = follower
        self._clock = clock
        self._notify = notify
        self._rng = rng
        self._sleep = sleep
        self._pace = CommitPace(rng)
        self._waiting: list[Op[Any]] = []
        self._task: asyncio.Task[None] | None = None
        self._doubtful: dict[str, list[Op[Any]]] = {}
        """commits that may have been made although their callers got an outage"""
        self._undoing: set[asyncio.Task[None]] = set()
        follower.on_commit = self._recognise

    async def run(self, op: Op[T]) -> T:
        self._waiting.append(op)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve(), name="mainstay registry")
        return await op.future

    async def at_tip(self, take: Callable[[Replica], T]) -> T:
        """Run a function on the replica, with all commits up to now."""

        async def work(_: MemoryStore) -> T:
            return take(self._follower.replica)

        return await self.run(Op(work, reads=True))

    async def settled(self) -> None:
        """Wait until the queue is empty."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _serve(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
                await self._do([op for op in some if not op.future.done()])
        finally:
            self._task = None

    async def _do(self, ops: list[Op[Any]]) -> None:
        reads, writes = [op for op in ops if op.reads], [op for op in ops if not op.reads]
        try:
            looked = bool(reads) or any(op.looks for op in writes) or self._follower.away()
            if looked:
                await self._follower.catch_up()
            for op in reads:
                await self._prepare(op)
                await self._attempt(op)
                op.resolve()
            if writes:
                await self._write(writes, looked=looked)
        except BaseException as error:  # noqa: BLE001 - the callers get it; the queue continues
            self._follower.replica.undo()
            # `writes` includes operations that joined later
            for op in (*reads, *writes):
                op.fail(error)

    async def _write(self, ops: list[Op[Any]], *, looked: bool) -> None:
        """Commit their changes. Operations that arrive while this process leaves time to others are added to `ops`."""
        self.counts.updates += 1
        if wait_s := self._pace.wait_s(_now_s()):
            await self._sleep(wait_s)
            ops += self._joining()
        confirmed = False
        if self._pace.others:
            # reading costs less than a commit that comes too late
            await self._follower.catch_up(to_write=True)
            looked = confirmed = True
        until_ms = self._clock.lease_ms() + PATIENCE_S * 1000
        for tried in count(1):
            begun_s = _now_s()
            lines = await self._decide(ops)
            if not lines and not looked:
                # an operation is refused, or finds nothing, on a replica that may be out of date
                self._follower.replica.undo()
                await self._follower.catch_up()
                looked = True
                lines = await self._decide(ops)
            if not lines:
                self._finish(ops)
                return
            try:
                if not confirmed:
                    await self._follower.confirm(to_write=True)
                won = await self._commit(lines, ops)
            except PayloadTooLarge:
                if len(ops) == 1:
                    raise
                self._follower.replica.undo()
                for op in ops:
                    await self._do([op])
                return
            if won:
                self._pace.made(_now_s(), took_s=_now_s() - begun_s)
                self._finish(ops)
                self.after_commit(self._follower.replica.number)
                return
            self._follower.replica.undo()
            self._pace.lost()
            self.counts.conflicts += 1
            if tried >= TRIES and self._clock.lease_ms() >= until_ms:
                self.counts.gave_up += 1
                raise TooManyConflicts(self._follower.next_key, tried, place=self._follower.log.store.place)
            await self._sleep(self._rng.uniform(0, min(MOST_S, BASE_S * 2 ** (tried - 1))))
            await self._until_quiet()
            self.counts.retries += 1
            looked = confirmed = True

    async def _until_quiet(self) -> None:
        """Catch up, and wait for a moment without commits: between two immediate commits of one process no other
        succeeds."""
        for _ in range(_MOST_BREATHS):
            await self._follower.catch_up()
            await asyncio.sleep(self._pace.breath_s)
            if not await self._follower.catch_up(to_write=True):
                return

    def _joining(self) -> list[Op[Any]]:
        """Writes that arrived during the wait, and can be part of this commit."""
        writes = [op for op in self._waiting if not op.reads and not op.future.done()]
        self._waiting = [op for op in self._waiting if op.reads]
        return writes

    async def _decide(self, ops: list[Op[Any]]) -> list[dict[str, Any]]:
        """Run them on the replica. Returns their effects."""
        for op in ops:
            await self._prepare(op)
        for op in ops:
            await self._attempt(op)
        return self._follower.replica.effects()

    async def _prepare(self, op: Op[Any]) -> None:
        if op.prepare is not None:
            await op.prepare()

    async def _attempt(self, op: Op[Any]) -> None:
        replica = self._follower.replica
        mark = len(replica.journal.entries)
        op.error = None
        try:
            op.result = await op.work(replica.store)
        except Exception as error:  # noqa: BLE001 - the result of this operation alone
            replica.undo(mark)
            op.error = error

    async def _commit(self, documents: list[dict[str, Any]], ops: list[Op[Any]]) -> bool:
        follower, number = self._follower, self._follower.replica.number + 1
        commit_id = follower.log.new_id()
        lines = [encoded(line) for line in documents]
        try:
            size = await follower.log.create(number, commit_id, lines, self._clock.now_ms())
        except WriteUnsure:
            if doubtful := [op for op in ops if op.unheard is not None and op.error is None]:
                self._doubtful[commit_id] = doubtful
            raise
        if size is None:
            return False
        if follower.away() and not await self._counts(number):
            return False
        written, woken = follower.replica.won(documents)
        follower.made(number, lines, documents, size)
        self.on_written(written)
        self._notify(woken)
        return True

    async def _counts(self, number: int) -> bool:
        """Whether a commit counts. If this process stood still long enough for a commit of the same number to be made,
        read by all, put into a snapshot and removed, then ours met no conflict and is not part of the log."""
        seen = await self._follower.log.head()
        if seen is not None and seen.head.number < number:
            return True
        key = self._follower.next_key
        if stored := await self._follower.log.store.get(key):
            await self._follower.log.store.delete(key, stored.version)
        self._follower.distrust()
        return False

    def _finish(self, ops: list[Op[Any]]) -> None:
        replica = self._follower.replica
        if replica.journal.entries:
            replica.undo()  # changed and changed back
        for op in ops:
            op.resolve()

    def _recognise(self, commit: Commit) -> None:
        """Read a commit: of another process, or one of our own whose callers got an outage."""
        self._pace.saw(commit.by, _now_s())
        for op in self._doubtful.pop(commit.id, ()):
            assert op.unheard is not None
            undoing = asyncio.get_running_loop().create_task(_quietly(op.unheard(op.result)))
            self._undoing.add(undoing)
            undoing.add_done_callback(self._undoing.discard)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _quietly(undoing: Awaitable[object]) -> None:
    try:
        await undoing
    except MainstayError:
        log.warning("jobs of a claim whose outcome was unknown could not be released", exc_info=True)
