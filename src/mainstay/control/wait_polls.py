"""Polls for waiters of jobs, as a fallback for lost wakes.

A waiter is woken when its job settles. A wake can be lost (its folder is full, for example), so the rows are also
polled, by one task per event loop for all waiters: 3000 waiters that polled separately kept a core busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Iterator, Sequence

from ..errors import JobNotFound
from ..lifecycle import table_of
from ..model import Job
from ..stores import JobStore

_BATCH = 500


class Polls:
    """The polled jobs of each event loop."""

    def __init__(self, store: JobStore, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._pollers: dict[asyncio.AbstractEventLoop, _Poller] = {}

    @contextlib.contextmanager
    def watched(self, job_id: str) -> Iterator[asyncio.Future[Job]]:
        """A future with the job, once a poll finds it settled, or with the error of a poll."""
        loop = asyncio.get_running_loop()
        poller = self._pollers.get(loop)
        if poller is None:
            poller = self._pollers[loop] = _Poller(self._store, self._every_s)
        future = poller.add(job_id)
        try:
            yield future
        finally:
            poller.drop(job_id, future)
            if not poller.watchers:
                self._pollers.pop(loop, None)
                poller.stop()


class _Poller:
    """Polls the jobs of one event loop."""

    def __init__(self, store: JobStore, every_s: float) -> None:
        self.watchers: dict[str, list[asyncio.Future[Job]]] = {}
        self._store = store
        self._every_s = every_s
        # in an empty context: the first waiter starts it, but it serves all
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name="mainstay polls", context=contextvars.Context()
        )

    def add(self, job_id: str) -> asyncio.Future[Job]:
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self.watchers.setdefault(job_id, []).append(future)
        return future

    def drop(self, job_id: str, future: asyncio.Future[Job]) -> None:
        self.watchers[job_id].remove(future)
        if not self.watchers[job_id]:
            del self.watchers[job_id]
        if future.done() and not future.cancelled():
            future.exception()  # mark it as retrieved: the waiter may have returned after a wake

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            ids = list(self.watchers)
            for start in range(0, len(ids), _BATCH):
                await self._poll(ids[start : start + _BATCH])

    async def _poll(self, ids: Sequence[str]) -> None:
        try:
            rows = await self._store.get(ids)
        except Exception as error:  # noqa: BLE001 - passed on to the waiters
            for job_id in ids:
                self._resolve(job_id, error)
            return
        for job_id, row in zip(ids, rows, strict=True):
            if row is None:
                self._resolve(job_id, JobNotFound(job_id))
            elif is_over(row):
                self._resolve(job_id, row)

    def _resolve(self, job_id: str, result: Job | Exception) -> None:
        for future in self.watchers.get(job_id, ()):
            if future.done():
                continue
            if isinstance(result, Job):
                future.set_result(result)
            else:
                future.set_exception(result)


def is_over(job: Job) -> bool:
    """Whether the job has settled, as far as this version knows its status."""
    state = table_of(job.parent).get(job.status)
    return state is not None and state.settled
