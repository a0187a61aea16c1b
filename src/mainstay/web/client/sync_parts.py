"""What an Client has below it: jobs, queues, schedules and batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Unpack

from ...batch.desk import Output
from ...batch.findings import Validation
from ...control.looks import Limit, Queue
from ...model import QueueSettings
from ...report.batch import BatchReport
from ...report.batch_map import HeatMap
from ..api.seen import BatchSeen, Resuming, Schedule
from .answers import Done, Job, JobPage, Listed
from .core import Action, Core, Filters
from .core_store import BatchCore, QueueCore, ScheduleCore
from .following import list_stream
from .sync_handle import Follow, Handle, Run

_PAGE = 200


class Jobs:
    """Jobs by filter: `client.jobs`."""

    def __init__(self, core: Core, run: Run, follow: Follow) -> None:
        self._core = core
        self._run = run
        self._follow = follow

    def get(self, job_id: str, *, payload: bool = True) -> Job:
        """One job; raises `JobNotFound`."""
        return self._run(self._core.job(job_id, payload=payload))

    def page(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        oldest_first: bool = False,
        payload: bool = False,
        **filters: Unpack[Filters],
    ) -> JobPage:
        """One page of what matches; `cursor` is the `next` of the page before."""
        return self._run(
            self._core.page(filters, cursor=cursor, limit=limit, oldest_first=oldest_first, payload=payload)
        )

    def find(self, *, oldest_first: bool = False, payload: bool = False, **filters: Unpack[Filters]) -> Iterator[Job]:
        """All that match, newest first, read page by page as they are wanted."""
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
        **filters: Unpack[Filters],
    ) -> Done:
        """Retry, cancel or delete many: those with these ids, or those that match. With `dry_run` nothing is done, and
        the answer says what would be."""
        chosen = None if ids is not None and not filters else filters
        return self._run(self._core.act(action, ids=ids, filters=chosen, dry_run=dry_run, limit=limit, reason=reason))

    def stream(
        self, *, limit: int = 50, oldest_first: bool = False, **filters: Unpack[Filters]
    ) -> Generator[Listed, None, None]:
        """The first of what matches, now and whenever it changes; for ever."""
        return self._follow(list_stream(self._core, filters, limit=limit, oldest_first=oldest_first))


class Queues:
    """Queues: `client.queues`."""

    def __init__(self, core: QueueCore, run: Run) -> None:
        self._core = core
        self._run = run

    def all(self) -> list[Queue]:
        """Those that have jobs or settings, by name."""
        return (self._run(self._core.seen())).queues

    def get(self, name: str) -> Queue:
        """One of them."""
        return self._run(self._core.one(name))

    def pause(self, name: str, reason: str | None = None) -> QueueSettings:
        """Hand out no more of its jobs; what runs goes on."""
        return self._run(self._core.pause(name, reason))

    def resume(self, name: str) -> QueueSettings:
        """Hand out its jobs again."""
        return self._run(self._core.resume(name))

    def purge(
        self,
        name: str,
        *,
        delete: bool = False,
        dry_run: bool = False,
        limit: int | None = None,
        reason: str | None = None,
    ) -> Done:
        """Cancel, or delete, all of its jobs that wait."""
        return self._run(self._core.purge(name, delete_them=delete, dry_run=dry_run, limit=limit, reason=reason))

    def limits(self) -> list[Limit]:
        """The limits of concurrency keys."""
        return self._run(self._core.limits())

    def set_limit(self, key: str, most: int | None) -> None:
        """At most so many jobs of a concurrency key at a time; None lifts the limit."""
        self._run(self._core.set_limit(key, most))


class Schedules:
    """Schedules: `client.schedules`."""

    def __init__(self, core: ScheduleCore, run: Run, handle: Callable[[str], Handle]) -> None:
        self._core = core
        self._run = run
        self._handle = handle

    def all(self) -> list[Schedule]:
        """All of them, by name."""
        return self._run(self._core.seen())

    def get(self, name: str) -> Schedule:
        """One of them."""
        return self._run(self._core.one(name))

    def pause(self, name: str) -> Schedule:
        """Make no more ticks."""
        return self._run(self._core.pause(name))

    def resume(self, name: str) -> Schedule:
        """Tick again, from now on."""
        return self._run(self._core.resume(name))

    def run_now(self, name: str) -> Handle:
        """Submit its job now, beside its ticks."""
        return self._handle((self._run(self._core.run(name))).id)

    def drop(self, name: str) -> None:
        """Forget it; its jobs stay."""
        self._run(self._core.drop(name))


class Batches:
    """Batches by the id of their job: `client.batches`."""

    def __init__(self, core: BatchCore, run: Run) -> None:
        self._core = core
        self._run = run

    def status(self, job_id: str) -> BatchSeen:
        """How it stands, by the store of jobs alone."""
        return self._run(self._core.status(job_id))

    def report(self, job_id: str) -> BatchReport:
        """What became of it, set by set."""
        return self._run(self._core.report(job_id))

    def map(self, job_id: str) -> HeatMap:
        """Its parameter sets by outcome."""
        return self._run(self._core.map(job_id))

    def outputs(self, job_id: str, *, state: str | Sequence[str] | None = None) -> Iterator[Output]:
        """What is there of its outputs, in the order of the manifest: present, missing, corrupt or unreadable."""
        start: int | None = 0
        while start is not None:
            page = self._run(self._core.outputs(job_id, start=start, limit=_PAGE, state=state))
            yield from page.outputs
            start = page.next

    def validate(self, job_id: str, *, force: bool = False, version: int | None = None) -> Validation:
        """Look at all of its outputs now."""
        return self._run(self._core.validate(job_id, force=force, version=version))

    def resume(
        self, job_id: str, *, dry_run: bool = False, reason: str | None = None, version: int | None = None
    ) -> Resuming:
        """Run the units again whose outputs are missing or corrupt."""
        return self._run(self._core.resume(job_id, dry_run=dry_run, reason=reason, version=version))


__all__ = ["Batches", "Jobs", "Queues", "Schedules"]
