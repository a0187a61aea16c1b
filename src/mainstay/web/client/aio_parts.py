"""What an AsyncClient has below it: jobs, queues, schedules and batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Unpack

from ...batch.desk import Output
from ...batch.findings import Validation
from ...control.looks import Limit, Queue
from ...model import QueueSettings
from ...report.batch import BatchReport
from ...report.batch_map import HeatMap
from ..api.seen import BatchSeen, Resuming, Schedule
from .aio_handle import AsyncHandle, Follow, Run
from .answers import Done, Job, JobPage, Listed
from .core import Action, Core, Filters
from .core_store import BatchCore, QueueCore, ScheduleCore
from .following import list_stream

_PAGE = 200


class AsyncJobs:
    """Jobs by filter: `client.jobs`."""

    def __init__(self, core: Core, run: Run, follow: Follow) -> None:
        self._core = core
        self._run = run
        self._follow = follow

    async def get(self, job_id: str, *, payload: bool = True) -> Job:
        """One job; raises `JobNotFound`."""
        return await self._run(self._core.job(job_id, payload=payload))

    async def page(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        oldest_first: bool = False,
        payload: bool = False,
        **filters: Unpack[Filters],
    ) -> JobPage:
        """One page of what matches; `cursor` is the `next` of the page before."""
        return await self._run(
            self._core.page(filters, cursor=cursor, limit=limit, oldest_first=oldest_first, payload=payload)
        )

    async def find(
        self, *, oldest_first: bool = False, payload: bool = False, **filters: Unpack[Filters]
    ) -> AsyncIterator[Job]:
        """All that match, newest first, read page by page as they are wanted."""
        cursor: str | None = None
        while True:
            page = await self._run(
                self._core.page(filters, cursor=cursor, limit=_PAGE, oldest_first=oldest_first, payload=payload)
            )
            for job in page.jobs:
                yield job
            if (cursor := page.next) is None:
                return

    async def act(
        self,
        action: Action,
        *,
        ids: Sequence[str] | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        reason: str | None = None,
        **filters: Unpack[Filters],
    ) -> Done:
        """Retry, cancel or delete many: those with these ids, or those that match. With `dry_run` nothing is done, and
        the answer says what would be."""
        chosen = None if ids is not None and not filters else filters
        return await self._run(
            self._core.act(action, ids=ids, filters=chosen, dry_run=dry_run, limit=limit, reason=reason)
        )

    def stream(
        self, *, limit: int = 50, oldest_first: bool = False, **filters: Unpack[Filters]
    ) -> AsyncGenerator[Listed, None]:
        """The first of what matches, now and whenever it changes; for ever."""
        return self._follow(list_stream(self._core, filters, limit=limit, oldest_first=oldest_first))


class AsyncQueues:
    """Queues: `client.queues`."""

    def __init__(self, core: QueueCore, run: Run) -> None:
        self._core = core
        self._run = run

    async def all(self) -> list[Queue]:
        """Those that have jobs or settings, by name."""
        return (await self._run(self._core.seen())).queues

    async def get(self, name: str) -> Queue:
        """One of them."""
        return await self._run(self._core.one(name))

    async def pause(self, name: str, reason: str | None = None) -> QueueSettings:
        """Hand out no more of its jobs; what runs goes on."""
        return await self._run(self._core.pause(name, reason))

    async def resume(self, name: str) -> QueueSettings:
        """Hand out its jobs again."""
        return await self._run(self._core.resume(name))

    async def purge(
        self,
        name: str,
        *,
        delete: bool = False,
        dry_run: bool = False,
        limit: int | None = None,
        reason: str | None = None,
    ) -> Done:
        """Cancel, or delete, all of its jobs that wait."""
        return await self._run(self._core.purge(name, delete_them=delete, dry_run=dry_run, limit=limit, reason=reason))

    async def limits(self) -> list[Limit]:
        """The limits of concurrency keys."""
        return await self._run(self._core.limits())

    async def set_limit(self, key: str, most: int | None) -> None:
        """At most so many jobs of a concurrency key at a time; None lifts the limit."""
        await self._run(self._core.set_limit(key, most))


class AsyncSchedules:
    """Schedules: `client.schedules`."""

    def __init__(self, core: ScheduleCore, run: Run, handle: Callable[[str], AsyncHandle]) -> None:
        self._core = core
        self._run = run
        self._handle = handle

    async def all(self) -> list[Schedule]:
        """All of them, by name."""
        return await self._run(self._core.seen())

    async def get(self, name: str) -> Schedule:
        """One of them."""
        return await self._run(self._core.one(name))

    async def pause(self, name: str) -> Schedule:
        """Make no more ticks."""
        return await self._run(self._core.pause(name))

    async def resume(self, name: str) -> Schedule:
        """Tick again, from now on."""
        return await self._run(self._core.resume(name))

    async def run_now(self, name: str) -> AsyncHandle:
        """Submit its job now, beside its ticks."""
        return self._handle((await self._run(self._core.run(name))).id)

    async def drop(self, name: str) -> None:
        """Forget it; its jobs stay."""
        await self._run(self._core.drop(name))


class AsyncBatches:
    """Batches by the id of their job: `client.batches`."""

    def __init__(self, core: BatchCore, run: Run) -> None:
        self._core = core
        self._run = run

    async def status(self, job_id: str) -> BatchSeen:
        """How it stands, by the store of jobs alone."""
        return await self._run(self._core.status(job_id))

    async def report(self, job_id: str) -> BatchReport:
        """What became of it, set by set."""
        return await self._run(self._core.report(job_id))

    async def map(self, job_id: str) -> HeatMap:
        """Its parameter sets by outcome."""
        return await self._run(self._core.map(job_id))

    async def outputs(self, job_id: str, *, state: str | Sequence[str] | None = None) -> AsyncIterator[Output]:
        """What is there of its outputs, in the order of the manifest: present, missing, corrupt or unreadable."""
        start: int | None = 0
        while start is not None:
            page = await self._run(self._core.outputs(job_id, start=start, limit=_PAGE, state=state))
            for output in page.outputs:
                yield output
            start = page.next

    async def validate(self, job_id: str, *, force: bool = False, version: int | None = None) -> Validation:
        """Look at all of its outputs now."""
        return await self._run(self._core.validate(job_id, force=force, version=version))

    async def resume(
        self, job_id: str, *, dry_run: bool = False, reason: str | None = None, version: int | None = None
    ) -> Resuming:
        """Run the units again whose outputs are missing or corrupt."""
        return await self._run(self._core.resume(job_id, dry_run=dry_run, reason=reason, version=version))


__all__ = ["AsyncBatches", "AsyncJobs", "AsyncQueues", "AsyncSchedules"]
