"""Followed jobs: one read of all of them for all followers, and a wake-up for the end of each.

A store sends a wake when a job settles; other changes are found by reading the rows, in batches. New events of a job
are read once as well.
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
from .followed import Followed, FollowedSet
from .store_access import failure_of, without_values

#: rows read at a time, with their payloads
_BATCH = 100
#: events kept for each job, for followers that are up to date; others read from the store
_KEPT = 100
_LONGEST_S = 600.0
#: reads take at most a third of the time, so that followers do not wait long
_SHARE = 2


class FollowedJob(Followed):
    """One job that is followed."""

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.id = job_id
        self.row: Job | None = None
        """without its payload and result; None before the first read, and after its deletion"""
        self.was_read = False
        self._recent: deque[Event] = deque(maxlen=_KEPT)
        self._recent_after: int | None = None

    def recent(self, after: int) -> list[Event] | None:
        """Its events after that number; None: some of them are not kept here."""
        if self._recent_after is None or after < self._recent_after:
            return None
        return [event for event in self._recent if event.seq > after]

    def update(self, row: Job | None, events: Sequence[Event] = ()) -> None:
        """Take over a read row and its new events."""
        before = self.row
        if row is not None and before is not None and row.version < before.version:
            return
        same = self.was_read and row == before and not self.error
        self.row, self.was_read, self.error = row, True, ""
        if row is not None:
            self._keep(row, events)
        if not same:
            self.notify()

    def _keep(self, row: Job, events: Sequence[Event]) -> None:
        last = self._recent[-1].seq if self._recent else self._recent_after
        for event in events:
            if last is not None and last < event.seq <= row.version:
                if len(self._recent) == _KEPT:
                    self._recent_after = self._recent[0].seq
                self._recent.append(event)
                last = event.seq
        if last != row.version:
            # some events in between are unknown: start again
            self._recent.clear()
            self._recent_after = row.version


class FollowedJobs(FollowedSet[str, FollowedJob]):
    """The jobs that are followed in one store."""

    def __init__(self, served: ServedStore, every_s: float, masker: Masker) -> None:
        super().__init__()
        self._served = served
        self._masker = masker
        self._every_s = every_s
        self._round: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def follow(self, job_id: str) -> AsyncIterator[FollowedJob]:
        """Follow a job while the context is open."""
        async with self._following(job_id, lambda: FollowedJob(job_id), self._listening) as followed:
            if self._round is None:
                self._round = asyncio.create_task(self._read_all(), name="followed jobs")
            yield followed

    async def _forget(self, job_id: str) -> None:
        await super()._forget(job_id)
        if not self._followed:
            ended, self._round = self._round, None
            await self._cancel(ended)

    def _listening(self, followed: FollowedJob) -> asyncio.Task[None]:
        return asyncio.create_task(self._listen(followed), name=f"listener of job {followed.id}")

    async def _listen(self, followed: FollowedJob) -> None:
        """Read the job when it settles. A missed wake is harmless: the rounds read it as well."""
        while True:
            # after an error of the wake, try again; the rounds continue anyway
            with contextlib.suppress(MainstayError, OSError):
                async with self._served.store.wake([f"job:{followed.id}"]) as wake:
                    while True:
                        await self._read([followed])
                        await wake.wait(_LONGEST_S)
            await asyncio.sleep(self._every_s)

    async def _read_all(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = self._every_s
        while True:
            await asyncio.sleep(pause_s)
            began_s = loop.time()
            followed_jobs = list(self._followed.values())
            for start in range(0, len(followed_jobs), _BATCH):
                await self._read(followed_jobs[start : start + _BATCH])
            pause_s = max(self._every_s, (loop.time() - began_s) * _SHARE)

    async def _read(self, some: Sequence[FollowedJob]) -> None:
        error = await failure_of(self._served, lambda: self._update(some))
        if error:
            for followed in some:
                followed.fail(error)

    async def _update(self, some: Sequence[FollowedJob]) -> None:
        store = self._served.store
        rows = await store.get([followed.id for followed in some])
        for followed, row in zip(some, rows, strict=True):
            before = followed.row
            new_events: list[Event] = []
            if row is not None and before is not None and row.version > before.version:
                new_events = await store.events(followed.id, after=before.version, limit=_KEPT)
            shown = None if row is None else (await without_values(store, [row], self._masker))[0]
            followed.update(shown, new_events)


__all__ = ["FollowedJob", "FollowedJobs"]
