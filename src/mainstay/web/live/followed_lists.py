"""Followed lists of jobs: one read of each list for all clients that have the same one open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from ...model import Job
from ...stores import JobStore, Query
from ..api.job_pages import shown_page
from ..api.masker import Masker
from ..stores import ServedStore
from .followed import Followed, FollowedSet
from .store_access import failure_of

#: lists that are read at a time; a filter without an index may take long
_AT_A_TIME = 2
#: the longest time of one read
_PATIENCE_S = 15.0
#: reads take about a tenth of the time at most
_SHARE = 10

#: makes the query at each read, since ages count from now
MakeQuery = Callable[[JobStore], Awaitable[Query]]


class FollowedJobList(Followed):
    """One list that is followed."""

    def __init__(self, make_query: MakeQuery, limit: int) -> None:
        super().__init__()
        self.make_query = make_query
        self.limit = limit
        self.jobs: list[Job] = []
        self.finished = True
        """False: the search is not finished; more jobs may match"""
        self.at_ms = 0
        """0: not read yet"""

    def update(self, jobs: list[Job], at_ms: int, *, finished: bool) -> None:
        same = self.at_ms and (jobs, finished) == (self.jobs, self.finished) and not self.error
        self.jobs, self.finished = jobs, finished
        self.at_ms, self.error = max(at_ms, self.at_ms + 1), ""
        if not same:
            self.notify()


class FollowedLists(FollowedSet[bytes, FollowedJobList]):
    """The lists that are followed in one store."""

    def __init__(self, served: ServedStore, every_s: float, masker: Masker) -> None:
        super().__init__()
        self._served = served
        self._masker = masker
        self._every_s = every_s
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    @contextlib.asynccontextmanager
    async def follow(self, key: bytes, make_query: MakeQuery, limit: int) -> AsyncIterator[FollowedJobList]:
        """Follow a list while the context is open. Lists with the same key are the same list."""

        def start(listed: FollowedJobList) -> asyncio.Task[None]:
            return asyncio.create_task(self._keep_reading(listed), name="followed list")

        async with self._following(key, lambda: FollowedJobList(make_query, limit), start) as listed:
            yield listed

    async def _keep_reading(self, listed: FollowedJobList) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._turns:
                began_s = loop.time()
                await self._read(listed)
                took_s = loop.time() - began_s
            await asyncio.sleep(max(self._every_s, took_s * _SHARE))

    async def _read(self, listed: FollowedJobList) -> None:
        error = await failure_of(self._served, lambda: self._update(listed), _PATIENCE_S)
        if error:
            listed.fail(error)

    async def _update(self, listed: FollowedJobList) -> None:
        store = self._served.store
        page = await shown_page(store, await listed.make_query(store), None, listed.limit, self._masker)
        jobs = [msgspec.structs.replace(job, payload=b"", result=None) for job in page.jobs]
        listed.update(jobs, store.clock.now_ms(), finished=page.finished)


__all__ = ["FollowedJobList", "FollowedLists", "MakeQuery"]
