"""How a job that runs in an engine reaches the store: progress, checkpoints, more time, inputs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from ..control import Control, Extension
from ..model import Progress
from .context import Input, Stopped
from .outage import PASSING, Outage
from .reports import Reports
from .run import JobRun

T = TypeVar("T")


class RunLink(msgspec.Struct, eq=False):
    """The `Link` of a context whose job runs in this engine, or in one of its children."""

    run: JobRun
    control: Control
    reports: Reports
    unpack: Callable[[bytes], Any]
    loop: asyncio.AbstractEventLoop
    rng: random.Random
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
                run.store_limits.add(limit)
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
            run.store_limits.discard(limit)
