"""The resources of an AsyncClient: jobs, queues, schedules, batches, load tests and nodes."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ..batch import OutputStatus, Validation
from ..batch.report import BatchReport, HeatMap
from ..batch.web import BatchStatusView, ResumeResult
from ..control import JobView
from ..control.overview import LimitOverview, QueueOverview
from ..load import Summary
from ..load.live_messages import RunMessage
from ..model import QueueSettings
from ..node import NodeJobOverview, NodeList, NodeRetryResult
from ..web.api import BulkResult, JobPage, ScheduleInfo, SubmitResponse
from ..web.live import ListMessage
from .async_handle import AsyncFlowRunner, AsyncJobHandle, AsyncStreamReader
from .core import Action, Core, JobFilters
from .core_loads import LoadCore, LoadJobOptions, run_options
from .core_store import BatchCore, NodeCore, QueueCore, ScheduleCore
from .resumable_stream import list_stream

if TYPE_CHECKING:
    from ..load import FleetDemand, LoadOptions, LoadTest
    from ..load.fleet.submission_steps import FleetRequest, PlannedRun

_PAGE = 200

log = logging.getLogger("mainstay.client")


class AsyncJobsResource:
    """Jobs by filter: `client.jobs`."""

    def __init__(self, core: Core, run: AsyncFlowRunner, follow: AsyncStreamReader) -> None:
        self._core = core
        self._run = run
        self._follow = follow

    async def get(self, job_id: str, *, payload: bool = True) -> JobView:
        """Read one job; raises `JobNotFound`."""
        return await self._run(self._core.job(job_id, payload=payload))

    async def page(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        oldest_first: bool = False,
        payload: bool = False,
        **filters: Unpack[JobFilters],
    ) -> JobPage:
        """Read one page of the jobs that match; `cursor` is the `next` of the page before."""
        return await self._run(
            self._core.page(filters, cursor=cursor, limit=limit, oldest_first=oldest_first, payload=payload)
        )

    async def find(
        self, *, oldest_first: bool = False, payload: bool = False, **filters: Unpack[JobFilters]
    ) -> AsyncIterator[JobView]:
        """Iterate over the jobs that match, newest first, page by page."""
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
        **filters: Unpack[JobFilters],
    ) -> BulkResult:
        """Retry, cancel or delete many jobs: by these ids, or all that match. With `dry_run` nothing changes, and the
        response describes what would."""
        chosen = None if ids is not None and not filters else filters
        return await self._run(
            self._core.act(action, ids=ids, filters=chosen, dry_run=dry_run, limit=limit, reason=reason)
        )

    def stream(
        self, *, limit: int = 50, oldest_first: bool = False, **filters: Unpack[JobFilters]
    ) -> AsyncGenerator[ListMessage, None]:
        """Stream the first jobs that match, now and at each change. Does not end by itself."""
        return self._follow(list_stream(self._core, filters, limit=limit, oldest_first=oldest_first))


class AsyncQueuesResource:
    """Queues: `client.queues`."""

    def __init__(self, core: QueueCore, run: AsyncFlowRunner) -> None:
        self._core = core
        self._run = run

    async def all(self) -> list[QueueOverview]:
        """List the queues that have jobs or settings, by name."""
        overview = await self._run(self._core.all())
        return overview.queues

    async def get(self, name: str) -> QueueOverview:
        """Read one queue."""
        return await self._run(self._core.one(name))

    async def pause(self, name: str, reason: str | None = None) -> QueueSettings:
        """Pause the queue: workers take no more of its jobs; running jobs continue."""
        return await self._run(self._core.pause(name, reason))

    async def resume(self, name: str) -> QueueSettings:
        """Resume the queue: workers take its jobs again."""
        return await self._run(self._core.resume(name))

    async def purge(
        self,
        name: str,
        *,
        delete: bool = False,
        dry_run: bool = False,
        limit: int | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """Cancel, or delete, all of its waiting jobs."""
        return await self._run(self._core.purge(name, delete_them=delete, dry_run=dry_run, limit=limit, reason=reason))

    async def limits(self) -> list[LimitOverview]:
        """List the limits of concurrency keys."""
        return await self._run(self._core.limits())

    async def set_limit(self, key: str, most: int | None) -> None:
        """Limit the number of jobs of a concurrency key that run at a time; None removes the limit."""
        await self._run(self._core.set_limit(key, most))


class AsyncSchedulesResource:
    """Schedules: `client.schedules`."""

    def __init__(self, core: ScheduleCore, run: AsyncFlowRunner, handle: Callable[[str], AsyncJobHandle]) -> None:
        self._core = core
        self._run = run
        self._handle = handle

    async def all(self) -> list[ScheduleInfo]:
        """List all schedules, by name."""
        return await self._run(self._core.all())

    async def get(self, name: str) -> ScheduleInfo:
        """Read one schedule."""
        return await self._run(self._core.one(name))

    async def pause(self, name: str) -> ScheduleInfo:
        """Stop submitting at its ticks."""
        return await self._run(self._core.pause(name))

    async def resume(self, name: str) -> ScheduleInfo:
        """Submit at its ticks again, from now on."""
        return await self._run(self._core.resume(name))

    async def run_now(self, name: str) -> AsyncJobHandle:
        """Submit its job now, in addition to its ticks."""
        submitted = await self._run(self._core.run(name))
        return self._handle(submitted.id)

    async def drop(self, name: str) -> None:
        """Delete the schedule; its jobs stay."""
        await self._run(self._core.drop(name))


class AsyncBatchesResource:
    """Batches by the id of their job: `client.batches`."""

    def __init__(self, core: BatchCore, run: AsyncFlowRunner) -> None:
        self._core = core
        self._run = run

    async def status(self, job_id: str) -> BatchStatusView:
        """Read its state from the job store alone."""
        return await self._run(self._core.status(job_id))

    async def report(self, job_id: str) -> BatchReport:
        """Read the outcome of each parameter set."""
        return await self._run(self._core.report(job_id))

    async def map(self, job_id: str) -> HeatMap:
        """Read its parameter sets as a heat map of outcomes."""
        return await self._run(self._core.map(job_id))

    async def outputs(self, job_id: str, *, state: str | Sequence[str] | None = None) -> AsyncIterator[OutputStatus]:
        """Iterate over its outputs in the order of the manifest: present, missing, corrupt or unreadable."""
        start: int | None = 0
        while start is not None:
            page = await self._run(self._core.outputs(job_id, start=start, limit=_PAGE, state=state))
            for output in page.outputs:
                yield output
            start = page.next

    async def validate(self, job_id: str, *, force: bool = False, version: int | None = None) -> Validation:
        """Check all of its outputs now."""
        return await self._run(self._core.validate(job_id, force=force, version=version))

    async def resume(
        self, job_id: str, *, dry_run: bool = False, reason: str | None = None, version: int | None = None
    ) -> ResumeResult:
        """Run the units whose outputs are missing or corrupt again."""
        return await self._run(self._core.resume(job_id, dry_run=dry_run, reason=reason, version=version))


class AsyncLoadsResource:
    """Load tests on the nodes of a cluster: `client.loads`."""

    def __init__(
        self,
        core: LoadCore,
        run: AsyncFlowRunner,
        follow: AsyncStreamReader,
        handle: Callable[[SubmitResponse], AsyncJobHandle],
    ) -> None:
        self._core = core
        self._run = run
        self._follow = follow
        self._handle = handle

    async def submit(
        self,
        test: LoadTest | str | Path,
        load: LoadOptions | None = None,
        *,
        nodes: int | FleetDemand,
        on_note: Callable[[str], None] = log.warning,
        **options: Unpack[LoadJobOptions],
    ) -> AsyncJobHandle:
        """Send the code of a load test, or of the file with this path, to the cluster of the server, and submit a run.
        `on_note` takes what is worth knowing meanwhile: a warning, or what is waited for. Needs the extra
        `mainstay[load]`, and a token with the scope `code`."""
        return self._handle(await self._run(self._core.submit(test, load, nodes, options, on_note)))

    async def prepare(
        self,
        planned: PlannedRun,
        demand: FleetDemand,
        *,
        key: str | None = None,
        on_note: Callable[[str], None] = log.warning,
    ) -> FleetRequest:
        """The first half of a submit: check a planned run, and send its code. It creates no job. With the `key` of the
        job, a run that was submitted before is found although its nodes have gone."""
        return await self._run(self._core.prepare(planned, demand, on_note, key=key))

    async def insert(self, request: FleetRequest, **options: Unpack[LoadJobOptions]) -> AsyncJobHandle:
        """The second half: submit a prepared run."""
        return self._handle(await self._run(self._core.insert(request, run_options(options))))

    def stream(self, job_id: str, *, detail: bool = True) -> AsyncGenerator[RunMessage, None]:
        """Stream a load test until it has ended: its job now and after each change, its windows, the result of each
        workflow, what steps print, and its end. At a `RunBegin`, begin to count from zero: the windows that follow are
        all there were. A broken stream resumes where it broke. Without `detail`, windows have a second, and only
        its numbers."""
        return self._follow(self._core.stream(job_id, detail=detail))

    async def summary(self, job_id: str) -> Summary:
        """Read the summary of a load test: the final one, or the latest if it still runs."""
        return await self._run(self._core.summary(job_id))


class AsyncNodesResource:
    """Nodes, and node jobs by the id of their job: `client.nodes`."""

    def __init__(self, core: NodeCore, run: AsyncFlowRunner) -> None:
        self._core = core
        self._run = run

    async def all(self) -> NodeList:
        """List the nodes with their state and work, and the leader of placement."""
        return await self._run(self._core.all())

    async def job(self, job_id: str) -> NodeJobOverview:
        """Read a node job: its nodes, its leader phase and its quorum."""
        return await self._run(self._core.job(job_id))

    async def retry(self, job_id: str, node: str, *, reason: str | None = None) -> NodeRetryResult:
        """Run a node job again on a node where it failed."""
        return await self._run(self._core.retry(job_id, node, reason=reason))


__all__ = [
    "AsyncBatchesResource",
    "AsyncJobsResource",
    "AsyncLoadsResource",
    "AsyncNodesResource",
    "AsyncQueuesResource",
    "AsyncSchedulesResource",
]
