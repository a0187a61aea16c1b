"""Following jobs: one look at all that somebody follows, and an ear for each one's end.

A store tells when a job settles; all else is found by looking at the rows, a page of them at a time, for everybody who
follows any. What a job's trail has gained since is read once, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence

from ...errors import MainstayError
from ...lifecycle import Event
from ...model import Job
from ..api.masker import Masker
from ..stores import ServedStore
from .store_access import failure_of, without_values

#: rows read at a time; they come with their payloads
_BATCH = 100
#: events kept of each job, for those who are up to date; who is not reads on in the store
_KEPT = 100
_LONGEST_S = 600.0
#: looks take at most a third of the time: somebody waits for what they find
_SHARE = 2


class FollowedJob:
    """One job that is followed."""

    def __init__(self, job_id: str) -> None:
        self.id = job_id
        self.row: Job | None = None
        """without its payload and result; None before the first look, and once it is deleted"""
        self.looked = False
        self.error = ""
        """why the last look found nothing out"""
        self.changed = asyncio.Event()
        """set, and another one in its place, whenever there is news"""
        self.followers = 0
        self._recent: deque[Event] = deque(maxlen=_KEPT)
        self._recent_after: int | None = None

    def recent(self, after: int) -> list[Event] | None:
        """Its events after that one; None: some of them are not known here."""
        if self._recent_after is None or after < self._recent_after:
            return None
        return [event for event in self._recent if event.seq > after]

    def hear(self, row: Job | None, events: Sequence[Event] = ()) -> None:
        """Take in how it stands."""
        before = self.row
        if row is not None and before is not None and row.version < before.version:
            return
        same = self.looked and row == before and not self.error
        self.row, self.looked, self.error = row, True, ""
        if row is not None:
            self._keep(row, events)
        if not same:
            self._tell()

    def fail(self, error: str) -> None:
        if error != self.error:
            self.error = error
            self._tell()

    def _keep(self, row: Job, events: Sequence[Event]) -> None:
        last = self._recent[-1].seq if self._recent else self._recent_after
        for event in events:
            if last is not None and last < event.seq <= row.version:
                if len(self._recent) == _KEPT:
                    self._recent_after = self._recent[0].seq
                self._recent.append(event)
                last = event.seq
        if last != row.version:
            # not told all that lies between: begin anew
            self._recent.clear()
            self._recent_after = row.version

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class FollowedJobs:
    """All that are followed in one store."""

    def __init__(self, place: ServedStore, every_s: float, masker: Masker) -> None:
        self._place = place
        self._masker = masker
        self._every_s = every_s
        self._followed: dict[str, FollowedJob] = {}
        self._ears: dict[str, asyncio.Task[None]] = {}
        self._round: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    @contextlib.asynccontextmanager
    async def follow(self, job_id: str) -> AsyncIterator[FollowedJob]:
        """Follow a job meanwhile."""
        followed = self._followed.get(job_id)
        if followed is None:
            followed = self._followed[job_id] = FollowedJob(job_id)
            self._ears[job_id] = asyncio.create_task(self._listen(followed), name=f"ear {job_id}")
        if self._round is None:
            self._round = asyncio.create_task(self._go_round(), name="followed jobs")
        followed.followers += 1
        try:
            yield followed
        finally:
            followed.followers -= 1
            if not followed.followers:
                await self._forget(job_id)

    async def close(self) -> None:
        for job_id in list(self._followed):
            await self._forget(job_id)

    async def _forget(self, job_id: str) -> None:
        self._followed.pop(job_id, None)
        ended = [self._ears.pop(job_id, None)]
        if not self._followed:
            ended.append(self._round)
            self._round = None
        tasks = [task for task in ended if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _listen(self, followed: FollowedJob) -> None:
        """Look when it settles. To be asleep for long is no risk: it is looked at on the rounds besides."""
        while True:
            # whatever is wrong with waking, the rounds go on, and it is tried again
            with contextlib.suppress(MainstayError, OSError):
                async with self._place.store.wake([f"job:{followed.id}"]) as wake:
                    while True:
                        await self._look([followed])
                        await wake.wait(_LONGEST_S)
            await asyncio.sleep(self._every_s)

    async def _go_round(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = self._every_s
        while True:
            await asyncio.sleep(pause_s)
            began_s = loop.time()
            everything = list(self._followed.values())
            for start in range(0, len(everything), _BATCH):
                await self._look(everything[start : start + _BATCH])
            pause_s = max(self._every_s, (loop.time() - began_s) * _SHARE)

    async def _look(self, some: Sequence[FollowedJob]) -> None:
        error = await failure_of(self._place, lambda: self._hear(some))
        if error:
            for followed in some:
                followed.fail(error)

    async def _hear(self, some: Sequence[FollowedJob]) -> None:
        store = self._place.store
        rows = await store.get([followed.id for followed in some])
        for followed, row in zip(some, rows, strict=True):
            before = followed.row
            fresh: list[Event] = []
            if row is not None and before is not None and row.version > before.version:
                fresh = await store.events(followed.id, after=before.version, limit=_KEPT)
            shown = None if row is None else (await without_values(store, [row], self._masker))[0]
            followed.hear(shown, fresh)


__all__ = ["FollowedJob", "FollowedJobs"]
