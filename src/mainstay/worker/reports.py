"""How running jobs reach the store: progress, checkpoints, more time, inputs. Progress is sent in batches."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from ..control import Control, Extension
from ..errors import StaleClaim, StoreError
from ..model import Progress
from ..stores import ClaimReport
from ..words import counted
from .job_context import GiveBack, Input, Stopped
from .node_cores import NodeCores
from .outage import PASSING, Outage
from .run import JobRun

T = TypeVar("T")

log = logging.getLogger("mainstay.worker")

#: how often progress is stored
EVERY_S = 0.5


class Reports:
    """Progress is noted from any thread and sent in batches; a checkpoint is sent at once."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._unsent: dict[JobRun, ClaimReport] = {}
        self._sent_s = 0.0

    def note(self, run: JobRun, progress: Progress) -> None:
        """Keep it until the next write. Progress of a job that has ended is dropped."""
        report = self._control.claims.progress(run.job, progress.done, progress.total, progress.message)
        if not run.over:
            run.move_stall_deadline()
            self._unsent[run] = report

    async def now(self, run: JobRun, checkpoint: bytes | None = None) -> None:
        """Store its start, its progress and its checkpoint; raises `StaleClaim`."""
        unsent = self._unsent.pop(run, None)
        report = ClaimReport(
            job_id=run.job.id,
            session=run.job.session or "",
            token=run.job.token,
            started_ms=None if run.supervises else run.started_ms,
            progress=None if unsent is None else unsent.progress,
            checkpoint=checkpoint,
        )
        try:
            [accepted] = await self._control.claims.report([report])
        except StoreError:
            if unsent is not None:
                self._unsent.setdefault(run, unsent)
            raise
        if not accepted:
            raise StaleClaim(f"job {run.job.id}: the claim was lost; stop the work")

    @property
    def due(self) -> bool:
        """Whether there is progress to send, and the last time was long enough ago."""
        return bool(self._unsent) and asyncio.get_running_loop().time() - self._sent_s > EVERY_S

    async def send(self) -> None:
        """Store the progress since the last time. If the store is away, it is kept unless there is newer progress. Any
        other error costs these reports only: the ends of attempts must still be written."""
        if not self._unsent:
            return
        self._sent_s = asyncio.get_running_loop().time()
        # taken one by one: threads add to it at the same time
        batch = {run: report for run in list(self._unsent) if (report := self._unsent.pop(run, None)) is not None}
        try:
            accepted = await self._control.claims.report(list(batch.values()))
        except StoreError:
            for run, report in batch.items():
                self._unsent.setdefault(run, report)
            raise
        except Exception:
            log.exception("progress could not be stored n=%d; the jobs go on", len(batch))
            return
        for run, is_held in zip(batch, accepted, strict=True):
            if not is_held and not run.over:
                run.lose_claim()


class RunLink(msgspec.Struct, eq=False):
    """The `Link` of a context whose job runs in this engine, or in one of its children."""

    run: JobRun
    control: Control
    reports: Reports
    unpack: Callable[[bytes], Any]
    loop: asyncio.AbstractEventLoop
    rng: random.Random
    cores: NodeCores
    saving: asyncio.Lock | None = None
    """made by the first save: checkpoints are stored in the order in which the job saved them"""

    def progress(self, progress: Progress) -> None:
        self.reports.note(self.run, progress)

    async def save(self, checkpoint: bytes) -> None:
        if self.saving is None:
            self.saving = asyncio.Lock()
        async with self.saving:
            await self._repeat("save", lambda: self.reports.now(self.run, checkpoint))

    async def extend(self) -> Extension:
        extension = await self._repeat("extend", self._extend)
        if extension.granted:
            self.run.extend(extension.granted_s)
        return extension

    async def _extend(self) -> Extension:
        # the grant is decided from the stored row: progress must be stored first
        await self.reports.now(self.run)
        job = self.run.job
        extension = await self.control.claims.extend(job)
        if not extension.granted:
            # an earlier try may have been granted, and its answer lost on the way
            row = await self.control.jobs.get(job.id)
            if row.token == job.token and row.extra_ms > self.run.extra_ms:
                granted_s = (row.extra_ms - self.run.extra_ms) / 1000
                extension = msgspec.structs.replace(extension, granted_s=granted_s, why="granted at an earlier try")
        return extension

    async def inputs(self) -> list[Input]:
        return await self._repeat("inputs", self._inputs)

    async def _inputs(self) -> list[Input]:
        control = self.control
        inputs = []
        for job in await control.store.get(await control.jobs.awaited(self.run.job.id)):
            if job is not None:
                result: Any = None if job.result is None else self.unpack(job.result)
                inputs.append(Input(id=job.id, name=job.name, status=job.status, result=result, error=job.error))
        return inputs

    def take_cores(self, cores: int) -> None:
        if not self.cores.take(self.run, cores):
            raise GiveBack(
                f"it needs {counted(cores, 'core')}; {self.cores.free} of {self.cores.total} on this node are free"
            )

    async def _repeat(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call to the store, and repeat it while the store is away: an outage is not the job's failure.

        A request to stop (cancel, timeout, drain) bounds the wait: the job then leaves here as `Stopped`, early enough
        to end within its grace. Its run timeout goes on; its stall timeout does not, since the job waits for us.
        """
        run = self.run
        outage = Outage(f"{what} job_id={run.job.id}", self.rng)
        limit = asyncio.timeout_at(run.store_deadline_s if run.cause else None)
        try:
            async with limit:
                run.store_limits[limit] = None
                while True:
                    try:
                        answer = await call()
                    except PASSING as error:
                        if run.over:
                            raise
                        run.move_stall_deadline()
                        await asyncio.sleep(outage.failed(error))
                    else:
                        outage.over()
                        return answer
        except TimeoutError:
            if limit.expired():
                raise Stopped(run.context.stopping or run.cause) from None
            raise
        finally:
            run.store_limits.pop(limit, None)
