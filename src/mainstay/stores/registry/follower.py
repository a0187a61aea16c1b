"""The follower keeps a replica at the end of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ...clock import Clock
from ...errors import StoreUnavailable
from ..change_check import topics
from .documents import Line
from .files import damaged, unpacked
from .log import HEAD, Commit, Log, LogHead, commit_key, head_gone
from .replica import Replica

#: commits in one chunk of events, and the minimum between two snapshots
BLOCK = 64
#: Commits are removed no sooner than this after a snapshot contains them, ...
REMOVED_AFTER_S = 3600.0
#: ... and a process that has not seen the end of the log for this time begins at the head: the next commit to read may
#: be removed, and so may a commit with the number it would write. Both by each machine's own monotonic clock
AWAY_S = REMOVED_AFTER_S / 2
#: How often a read of the log also reads the head, to confirm that it is the same registry
CONFIRMED_S = 10.0
_MOST_AT_ONCE = 16
_TRIES = 5

Notify = Callable[[Mapping[str, int]], None]


class Follower:
    """The replica of this process, with the commits of others applied to it."""

    def __init__(self, log: Log, make: Callable[[], Replica], clock: Clock, notify: Notify) -> None:
        self.log = log
        self.replica = make()
        self.sizes: dict[int, int] = {}
        """block -> bytes of its commits that were read or written here"""
        self.events: dict[int, list[bytes]] = {}
        """block -> lines of its events, for the chunk; only of the newest blocks, complete from their beginning"""
        self.on_commit: Callable[[Commit], None] = lambda _: None
        self._make = make
        self._clock = clock
        self._notify = notify
        self._tip_ms: int | None = None
        """when the end of the log was last seen; None: the replica cannot be used as it is"""
        self._confirmed_ms = clock.lease_ms()
        """when the head was last read, and was that of this registry"""

    def second(self) -> Follower:
        """Another follower of the same log, with an empty replica."""
        return Follower(self.log, self._make, self._clock, lambda _: None)

    @property
    def next_key(self) -> str:
        """The key of the next commit."""
        return commit_key(self.replica.number + 1)

    def away(self) -> bool:
        """Whether the end of the log was last seen so long ago that the head has to be read."""
        return self._tip_ms is None or self._clock.lease_ms() - self._tip_ms > AWAY_S * 1000

    async def catch_up(self, *, to_write: bool = False) -> bool:
        """Apply the commits of others. Returns whether there were any. `to_write`: a commit follows, so confirm that
        the registry is still the one that was opened."""
        begun = self.replica.number
        if self.away():
            await self._begin_at_head()
        unconfirmed = to_write or self._clock.lease_ms() - self._confirmed_ms > CONFIRMED_S * 1000
        at_once = 1
        while True:
            looked_ms = self._clock.lease_ms()
            reading = asyncio.gather(*(self.log.read(self.replica.number + 1 + n) for n in range(at_once)))
            if unconfirmed:
                # concurrently, so that it takes no longer and gives others no more time to commit first
                commits, _ = await asyncio.gather(reading, self.confirm(to_write=to_write))
                unconfirmed = False
            else:
                commits = await reading
            for commit in commits:
                if commit is None:
                    self._tip_ms = looked_ms
                    return self.replica.number != begun
                await self._apply(commit)
            at_once = min(2 * at_once, _MOST_AT_ONCE)

    async def confirm(self, *, to_write: bool) -> None:
        """Read the head, to read or to write: raises `StoreReplaced` if it is that of another registry."""
        begun_ms = self._clock.lease_ms()
        if to_write:
            await self.log.confirm_to_write()
        else:
            await self.log.confirm()
        self._confirmed_ms = begun_ms

    def made(self, number: int, lines: Sequence[bytes], documents: Sequence[Line], size: int) -> None:
        """A commit of this process is in the log and in the replica."""
        self._tip_ms = self._clock.lease_ms()
        self._note(number, [raw for raw, line in zip(lines, documents, strict=True) if line["t"] == "event"], size)

    def distrust(self) -> None:
        """Make the next read begin at the head."""
        self._tip_ms = None

    async def _apply(self, commit: Commit) -> None:
        if await self.log.is_foreign(commit):
            self.replica.number = commit.number
            self._note(commit.number, [], commit.size)
            return
        try:
            woken = self.replica.apply(line for _, line in commit.lines)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # the replica is in no state that the log describes
            self._replace(self._make())
            self.distrust()
            raise damaged(self.log.where(commit_key(commit.number)), error) from None
        self.replica.number = commit.number
        self._note(commit.number, [raw for raw, line in commit.lines if line["t"] == "event"], commit.size)
        self.on_commit(commit)
        self._notify(woken)

    def _note(self, number: int, events: list[bytes], size: int) -> None:
        block = (number - 1) // BLOCK
        self.sizes[block] = self.sizes.get(block, 0) + size
        if block in self.events or (number - 1) % BLOCK == 0:
            self.events.setdefault(block, []).extend(events)
        # for the chunk of an older block, its commits are read again
        for old in [each for each in self.events if each < block - 1]:
            del self.events[old]

    def _replace(self, replica: Replica) -> None:
        replica.tables.sessions.update(self.replica.tables.sessions)
        self.replica = replica
        self.sizes.clear()
        self.events.clear()

    async def _begin_at_head(self) -> None:
        for _ in range(_TRIES):
            seen = await self.log.head()
            if seen is None:
                raise head_gone(self.log.where(HEAD))
            if seen.head.number <= self.replica.number:
                return  # no commit after ours has been removed
            fresh = await self.load(seen.head)
            if fresh is not None:
                self._wake_for(fresh)
                return
        raise StoreUnavailable(
            f"the snapshot of {self.log.store.place} was replaced {_TRIES} times while it was read; try again"
        )

    async def load(self, head: LogHead) -> Replica | None:
        """The replica from a snapshot; None if the snapshot was removed."""
        replica = self._make()
        if not head.snapshot:
            return replica
        keys = [f"{head.snapshot}/{part:06d}" for part in range(head.parts)]
        lines: list[Line] = []
        for start in range(0, len(keys), _MOST_AT_ONCE):
            some = keys[start : start + _MOST_AT_ONCE]
            for key, stored in zip(some, await asyncio.gather(*map(self.log.store.get, some)), strict=True):
                if stored is None:
                    return None
                part = [line for _, line in await asyncio.to_thread(unpacked, stored.value, self.log.where(key))]
                if part[0].get("registry", head.identity) != head.identity:
                    raise damaged(self.log.where(key), "it belongs to another registry")
                lines += part
        try:
            replica.apply(lines)
        except (LookupError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
            raise damaged(self.log.where(head.snapshot), error) from None
        replica.number = head.number
        return replica

    def _wake_for(self, fresh: Replica) -> None:
        """Use another replica, and wake subscribers of the rows that differ."""
        before = self.replica.tables.rows.jobs
        self._replace(fresh)
        for job_id, row in fresh.tables.rows.jobs.items():
            if before.get(job_id) != row:
                self._notify(dict.fromkeys(topics(before.get(job_id), row), 1))
