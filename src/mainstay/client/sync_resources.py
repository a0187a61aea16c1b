# Generated from async_resources.py by `make generate`. Do not edit.

"""The resources of a Client: jobs, queues, schedules, batches, load tests and nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
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
from .core import Action, Core, JobFilters
from .core_loads import LoadCore, LoadJobOptions, run_options
from .core_store import BatchCore, NodeCore, QueueCore, ScheduleCore
from .resumable_stream import list_stream
from .sync_handle import FlowRunner, JobHandle, StreamReader

if TYPE_CHECKING:
    from ..load import FleetDemand, LoadOptions, LoadTest
    from ..load.fleet.submission_steps import FleetRequest, PlannedRun

_PAGE = 200

log = logging.getLogger("mainstay.client")


class JobsResource:
    """Jobs by filter: `client.jobs`."""

    def __init__(self, core: Core, run: FlowRunner, follow: StreamReader) -> None:
        self._core = core
        self._run = run
        self._follow = follow

    def get(self, job_id: str, *, payload: bool = True) -> JobView:
        """Read one job; raises `JobNotFound`."""
        return self._run(self._core.job(job_id, payload=payload))

    def page(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        oldest_first: bool = False,
        payload: bool = False,
        **filters: Unpack[JobFilters],
    ) -> JobPage:
        """Read one page of the jobs that match; `cursor` is the `next` of the page before."""
        return self._run(
            self._core.page(filters, cursor=cursor, limit=limit, oldest_first=oldest_first, payload=payload)
        )

    def find(
        self, *, oldest_first: bool = False, payload: bool = False, **filters: Unpack[JobFilters]
    ) -> Iterator[JobView]:
        """Iterate over the jobs that match, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self._run(
                self._core.page(filters, cursor=cursor, limit=_PAGE, oldest_first=oldest_first, payload=payload)
            )
            yield from page.jobs
            if (cursor := page.next) is None:
                return

    def act(
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
        return self._run(self._core.act(action, ids=ids, filters=chosen, dry_run=dry_run, limit=limit, reason=reason))

    def stream(
        self, *, limit: int = 50, oldest_first: bool = False, **filters: Unpack[JobFilters]
    ) -> Generator[ListMessage, None, None]:
        """Stream the first jobs that match, now and at each change. Does not end by itself."""
        return self._follow(list_stream(self._core, filters, limit=limit, oldest_first=oldest_first))


class QueuesResource:
    """Queues: `client.queues`."""

    def __init__(self, core: QueueCore, run: FlowRunner) -> None:
        self._core = core
        self._run = run

    def all(self) -> list[QueueOverview]:
        """List the queues that have jobs or settings, by name."""
        overview = self._run(self._core.all())
        return overview.queues

    def get(self, name: str) -> QueueOverview:
        """Read one queue."""
        return self._run(self._core.one(name))

    def pause(self, name: str, reason: str | None = None) -> QueueSettings:
        """Pause the queue: workers take no more of its jobs; running jobs continue."""
        return self._run(self._core.pause(name, reason))

    def resume(self, name: str) -> QueueSettings:
        """Resume the queue: workers take its jobs again."""
        return self._run(self._core.resume(name))

    def purge(
        self,
        name: str,
        *,
        delete: bool = False,
        dry_run: bool = False,
        limit: int | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """Cancel, or delete, all of its waiting jobs."""
        return self._run(self._core.purge(name, delete_them=delete, dry_run=dry_run, limit=limit, reason=reason))

    def limits(self) -> list[LimitOverview]:
        """List the limits of concurrency keys."""
        return self._run(self._core.limits())

    def set_limit(self, key: str, most: int | None) -> None:
        """Limit the number of jobs of a concurrency key that run at a time; None removes the limit."""
        self._run(self._core.set_limit(key, most))


class SchedulesResource:
    """Schedules: `client.schedules`."""

    def __init__(self, core: ScheduleCore, run: FlowRunner, handle: Callable[[str], JobHandle]) -> None:
        self._core = core
        self._run = run
        self._handle = handle

    def all(self) -> list[ScheduleInfo]:
        """List all schedules, by name."""
        return self._run(self._core.all())

    def get(self, name: str) -> ScheduleInfo:
        """Read one schedule."""
        return self._run(self._core.one(name))

    def pause(self, name: str) -> ScheduleInfo:
        """Stop submitting at its ticks."""
        return self._run(self._core.pause(name))

    def resume(self, name: str) -> ScheduleInfo:
        """Submit at its ticks again, from now on."""
        return self._run(self._core.resume(name))

    def run_now(self, name: str) -> JobHandle:
        """Submit its job now, in addition to its ticks."""
        submitted = self._run(self._core.run(name))
        return self._handle(submitted.id)

    def drop(self, name: str) -> None:
        """Delete the schedule; its jobs stay."""
        self._run(self._core.drop(name))


class BatchesResource:
    """Batches by the id of their job: `client.batches`."""

    def __init__(self, core: BatchCore, run: FlowRunner) -> None:
        self._core = core
        self._run = run

    def status(self, job_id: str) -> BatchStatusView:
        """Read its state from the job store alone."""
        return self._run(self._core.status(job_id))

    def report(self, job_id: str) -> BatchReport:
        """Read the outcome of each parameter set."""
        return self._run(self._core.report(job_id))

    def map(self, job_id: str) -> HeatMap:
        """Read its parameter sets as a heat map of outcomes."""
        return self._run(self._core.map(job_id))

    def outputs(self, job_id: str, *, state: str | Sequence[str] | None = None) -> Iterator[OutputStatus]:
        """Iterate over its outputs in the order of the manifest: present, missing, corrupt or unreadable."""
        start: int | None = 0
        while start is not None:
            page = self._run(self._core.outputs(job_id, start=start, limit=_PAGE, state=state))
            yield from page.outputs
            start = page.next

    def validate(self, job_id: str, *, force: bool = False, version: int | None = None) -> Validation:
        """Check all of its outputs now."""
        return self._run(self._core.validate(job_id, force=force, version=version))

    def resume(
        self, job_id: str, *, dry_run: bool = False, reason: str | None = None, version: int | None = None
    ) -> ResumeResult:
        """Run the units whose outputs are missing or corrupt again."""
        return self._run(self._core.resume(job_id, dry_run=dry_run, reason=reason, version=version))


class LoadsResource:
    """Load tests on the nodes of a cluster: `client.loads`."""

    def __init__(
        self,
        core: LoadCore,
        run: FlowRunner,
        follow: StreamReader,
        handle: Callable[[SubmitResponse], JobHandle],
    ) -> None:
        self._core = core
        self._run = run
        self._follow = follow
        self._handle = handle

    def submit(
        self,
        test: LoadTest | str | Path,
        load: LoadOptions | None = None,
        *,
        nodes: int | FleetDemand,
        on_note: Callable[[str], None] = log.warning,
        **options: Unpack[LoadJobOptions],
    ) -> JobHandle:
        """Send the code of a load test, or of the file with this path, to the cluster of the server, and submit a run.
        `on_note` takes what is worth knowing meanwhile: a warning, or what is waited for. Needs the extra
        `mainstay[load]`, and a token with the scope `code`."""
        return self._handle(self._run(self._core.submit(test, load, nodes, options, on_note)))

    def prepare(
        self,
        planned: PlannedRun,
        demand: FleetDemand,
        *,
        key: str | None = None,
        on_note: Callable[[str], None] = log.warning,
    ) -> FleetRequest:
        """The first half of a submit: check a planned run, and send its code. It creates no job. With the `key` of the
        job, a run that was submitted before is found although its nodes have gone."""
        return self._run(self._core.prepare(planned, demand, on_note, key=key))

    def insert(self, request: FleetRequest, **options: Unpack[LoadJobOptions]) -> JobHandle:
        """The second half: submit a prepared run."""
        return self._handle(self._run(self._core.insert(request, run_options(options))))

    def stream(self, job_id: str, *, detail: bool = True) -> Generator[RunMessage, None, None]:
        """Stream a load test until it has ended: its job now and after each change, its windows, the result of each
        workflow, what steps print, and its end. At a `RunBegin`, begin to count from zero: the windows that follow are
        all there were. A broken stream resumes where it broke. Without `detail`, windows have a second, and only
        its numbers."""
        return self._follow(self._core.stream(job_id, detail=detail))

    def summary(self, job_id: str) -> Summary:
        """Read the summary of a load test: the final one, or the latest if it still runs."""
        return self._run(self._core.summary(job_id))


class NodesResource:
    """Nodes, and node jobs by the id of their job: `client.nodes`."""

    def __init__(self, core: NodeCore, run: FlowRunner) -> None:
        self._core = core
        self._run = run

    def all(self) -> NodeList:
        """List the nodes with their state and work, and the leader of placement."""
        return self._run(self._core.all())

    def job(self, job_id: str) -> NodeJobOverview:
        """Read a node job: its nodes, its leader phase and its quorum."""
        return self._run(self._core.job(job_id))

    def retry(self, job_id: str, node: str, *, reason: str | None = None) -> NodeRetryResult:
        """Run a node job again on a node where it failed."""
        return self._run(self._core.retry(job_id, node, reason=reason))


__all__ = [
    "BatchesResource",
    "JobsResource",
    "LoadsResource",
    "NodesResource",
    "QueuesResource",
    "SchedulesResource",
]
