"""The second net under those who wait for jobs: one read for all of them, every so often.

A waiter is woken when its job settles. A wake can fail (its folder is full, or the store is not told), so the rows are
looked at besides; by one task per event loop, for everybody: 3000 waiters that looked for themselves kept a core busy.
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
    """Who waits for what, on each event loop."""

    def __init__(self, store: JobStore, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._rounds: dict[asyncio.AbstractEventLoop, _Round] = {}

    @contextlib.contextmanager
    def watched(self, job_id: str) -> Iterator[asyncio.Future[Job]]:
        """A future that has the job once a look found it settled, or what went wrong with the look."""
        loop = asyncio.get_running_loop()
        found = self._rounds.get(loop)
        if found is None:
            found = self._rounds[loop] = _Round(self._store, self._every_s)
        future = found.add(job_id)
        try:
            yield future
        finally:
            found.drop(job_id, future)
            if not found.watchers:
                self._rounds.pop(loop, None)
                found.stop()


class _Round:
    """The looks of one event loop."""

    def __init__(self, store: JobStore, every_s: float) -> None:
        self.watchers: dict[str, list[asyncio.Future[Job]]] = {}
        self._store = store
        self._every_s = every_s
        # in no one's context: it is begun by whoever waits first, and serves all
        self._task = asyncio.get_running_loop().create_task(
            self._look(), name="mainstay polls", context=contextvars.Context()
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
            future.exception()  # seen: its waiter may have had its answer from elsewhere

    def stop(self) -> None:
        self._task.cancel()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            ids = list(self.watchers)
            for start in range(0, len(ids), _BATCH):
                await self._look_at(ids[start : start + _BATCH])

    async def _look_at(self, ids: Sequence[str]) -> None:
        try:
            rows = await self._store.get(ids)
        except Exception as error:  # noqa: BLE001 - those who wait are told
            for job_id in ids:
                self._tell(job_id, error)
            return
        for job_id, row in zip(ids, rows, strict=True):
            if row is None:
                self._tell(job_id, JobNotFound(job_id))
            elif is_over(row):
                self._tell(job_id, row)

    def _tell(self, job_id: str, what: Job | Exception) -> None:
        for future in self.watchers.get(job_id, ()):
            if future.done():
                continue
            if isinstance(what, Job):
                future.set_result(what)
            else:
                future.set_exception(what)


def is_over(job: Job) -> bool:
    """Whether it stands where nothing happens any more by itself, as far as this version knows its status."""
    state = table_of(job.parent).get(job.status)
    return state is not None and state.settled
