"""Snapshots and chunks: they keep the log short, and the audit trail complete.

The registry is complete after each step, so the process may die between any two:

1. the events of each full block of commits are written as a chunk, once, under a name with the numbers of the commits;
2. everything is written as a snapshot, under a new name;
3. the head is moved to it, if it is newer than the current one;
4. an hour later, commits that are in the snapshot and in chunks are removed, and older snapshots.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from ...clock import Clock
from ...errors import MainstayError, StoreError
from .files import SCHEMA, always_packed, encoded, packed, split
from .follower import BLOCK, REMOVED_AFTER_S, Follower
from .log import LogHead, SeenHead, commit_key

log = logging.getLogger("mainstay.stores.registry")

#: a snapshot is due when the log since the last one has a fourth of its size, ...
_SHARE = 4
#: ... or this number of commits, whatever their size: a process that opens the registry reads them all
_MOST_COMMITS = 1024
#: a writer checks every few commits whether a block has no chunk yet, because the process that was to write it died
_LOOK_EVERY = 8
#: commits removed at once
_REMOVED_AT_ONCE = 4 * BLOCK
#: if no process lives long enough to see a snapshot become old, the wall clocks decide, with a margin for wrong ones
_SURELY_OLD_MS = 25 * 3_600_000

#: the number and the lines of the replica between two commits
Capture = Callable[[], Awaitable[tuple[int, list[bytes]]]]


def chunk_key(block: int) -> str:
    """
    >>> chunk_key(0)
    'events/000000000001-000000000064.ndjson.zst'
    """
    return f"events/{block * BLOCK + 1:012d}-{(block + 1) * BLOCK:012d}.ndjson.zst"


class SnapshotWriter:
    """Writes chunks and snapshots in the background, one at a time."""

    def __init__(self, follower: Follower, clock: Clock, capture: Capture, *, part_bytes: int) -> None:
        self._follower = follower
        self._clock = clock
        self._capture = capture
        self._part_bytes = part_bytes
        self._task: asyncio.Task[None] | None = None
        self._chunked = 0
        """blocks before this one have their chunks"""
        self._first_seen: dict[int, int] = {}
        """number of a snapshot -> when this process first saw it in the head"""

    def committed(self, number: int) -> None:
        """This process has made a commit: start a round if it is due."""
        if number % _LOOK_EVERY or number // BLOCK <= self._chunked or self._task is not None:
            return
        self._task = asyncio.get_running_loop().create_task(self._roll_quietly(), name="mainstay registry roll")

    async def settled(self) -> None:
        """Wait for the current round."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def roll(self) -> None:
        """Write the chunks and the snapshot that are due, and remove old commits."""
        seen = await self._follower.log.head()
        if seen is None:
            return
        number = self._follower.replica.number
        await self._make_chunks(max(self._chunked, seen.head.removed // BLOCK), number // BLOCK)
        if self._is_due(seen.head, number):
            seen = await self.snapshot(seen) or seen
        self._first_seen.setdefault(seen.head.number, self._clock.lease_ms())
        if old := self._old_number(seen.head):
            await self._remove(seen, old)

    async def snapshot(self, seen: SeenHead) -> SeenHead | None:
        """Write a snapshot and move the head to it; None if another process has a newer one."""
        store = self._follower.log.store
        number, lines = await self._capture()
        name = f"snapshot/{number:012d}-{self._follower.log.new_id()[:8]}"
        mark = self._follower.log.mark()
        header = encoded({"t": "snapshot", "schema": SCHEMA, "n": number, "at_ms": self._clock.now_ms(), **mark})
        parts = list(split(lines, self._part_bytes)) or [[]]
        size = 0
        for at, part in enumerate(parts):
            body = await asyncio.to_thread(packed, [header, *part])
            size += len(body)
            await store.create_if_absent(f"{name}/{at:06d}", body)
        while seen.head.number < number:
            head = msgspec.structs.replace(
                seen.head,
                snapshot=name,
                number=number,
                parts=len(parts),
                size=size,
                at_ms=self._clock.now_ms(),
                past=_past(seen.head, self._clock.now_ms()),
            )
            moved = await self._follower.log.move_head(seen, head)
            current = await self._follower.log.head()
            if moved or current is None:
                return current
            seen = current
        await self._remove_all([f"{name}/{at:06d}" for at in range(len(parts))])
        return None

    async def _roll_quietly(self) -> None:
        try:
            await self.roll()
        except StoreError as error:
            log.info("a snapshot of the registry was postponed: %s", error)
        except MainstayError:
            log.warning("a snapshot of the registry failed", exc_info=True)
        finally:
            self._task = None

    def _is_due(self, head: LogHead, number: int) -> bool:
        commits = number - head.number
        if commits < BLOCK:
            return False
        written = sum(size for block, size in self._follower.sizes.items() if block >= head.number // BLOCK)
        return written * _SHARE >= head.size or commits >= _MOST_COMMITS

    async def _make_chunks(self, first: int, end: int) -> None:
        store = self._follower.log.store
        for block in range(first, end):
            lines = self._follower.events.get(block)
            if lines is None and await store.get(chunk_key(block)) is None:
                lines = await self._events_of(block)
            if lines is not None:
                await store.create_if_absent(chunk_key(block), always_packed(lines))
            self._chunked = max(self._chunked, block + 1)

    async def _events_of(self, block: int) -> list[bytes]:
        events: list[bytes] = []
        for number in range(block * BLOCK + 1, (block + 1) * BLOCK + 1):
            commit = await self._follower.log.read(number)
            # a removed commit is in a chunk, and then this block is not read
            if commit is not None and not await self._follower.log.is_foreign(commit):
                events += [raw for raw, line in commit.lines if line["t"] == "event"]
        return events

    def _old_number(self, head: LogHead) -> int:
        """The number of the newest snapshot that is certainly older than an hour; 0: there is none."""
        now, wall = self._clock.lease_ms(), self._clock.now_ms()
        watched = [number for number, seen in self._first_seen.items() if now - seen >= REMOVED_AFTER_S * 1000]
        known = (*head.past, (head.number, head.at_ms))
        old = max([0, *watched, *(number for number, at_ms in known if wall - at_ms >= _SURELY_OLD_MS)])
        self._first_seen = {number: seen for number, seen in self._first_seen.items() if number >= old}
        return old

    async def _remove(self, seen: SeenHead, old: int) -> None:
        first = seen.head.removed + 1
        last = min(old, self._chunked * BLOCK, seen.head.removed + _REMOVED_AT_ONCE)
        if last >= first:
            await self._follower.log.confirm()
            await self._remove_all([commit_key(number) for number in range(first, last + 1)])
            await self._follower.log.move_head(seen, msgspec.structs.replace(seen.head, removed=last))
        # also the parts of snapshots whose writers died
        keys = await self._follower.log.store.list_keys("snapshot/")
        bound = f"snapshot/{old:012d}"
        await self._remove_all([key for key in keys if key < bound and not key.startswith(seen.head.snapshot)])

    async def _remove_all(self, keys: Iterable[str]) -> None:
        store = self._follower.log.store
        for key in keys:
            if stored := await store.get(key):
                await store.delete(key, stored.version)


def _past(head: LogHead, now_ms: int) -> tuple[tuple[int, int], ...]:
    """The earlier snapshots to record in the next head."""
    kept = [(number, at_ms) for number, at_ms in head.past if now_ms - at_ms < 2 * _SURELY_OLD_MS]
    if head.number and (not kept or head.at_ms - kept[-1][1] >= 3_600_000):
        kept.append((head.number, head.at_ms))
    return tuple(kept)
