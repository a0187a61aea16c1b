"""Progress and checkpoints of running jobs, on their way to the store: progress is collected and sent in batches."""

from __future__ import annotations

import asyncio
import logging

from ..control import Control
from ..errors import StaleClaim, StoreError
from ..model import Progress
from ..stores import ClaimReport
from .run import JobRun

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
            started_ms=run.started_ms,
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
