"""What running jobs say between start and end, on its way to the store: kept for a moment, sent together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..control import Control
from ..errors import StaleClaim, StoreError
from ..model import Progress
from ..stores import ClaimReport
from .run import JobRun

log = logging.getLogger("mainstay.worker")

#: how often what was said is stored
EVERY_S = 0.5


class Reports:
    """Progress is noted from any thread and sent in batches; a checkpoint is sent at once."""

    def __init__(self, control: Control, *, record: Callable[[JobRun], None], lost: Callable[[JobRun], None]) -> None:
        self._control = control
        self._record = record
        self._lost = lost
        self._said: dict[JobRun, ClaimReport] = {}
        self._sent_s = 0.0

    def note(self, run: JobRun, progress: Progress) -> None:
        """Keep it until the next write. The last words of a job that has ended are not heard."""
        report = self._control.claims.progress(run.job, progress.done, progress.total, progress.message)
        if run.over:
            return
        run.progress_ms = self._control.store.clock.lease_ms()
        self._said[run] = report
        if run.job.options.stall_timeout_s is not None:
            self._record(run)

    def waiting(self, run: JobRun) -> None:
        """It waits for the store: that is not a stall."""
        if run.job.options.stall_timeout_s is not None and not run.over:
            run.progress_ms = self._control.store.clock.lease_ms()
            self._record(run)

    async def now(self, run: JobRun, checkpoint: bytes | None = None) -> None:
        """Store that it began, how far it came, and its checkpoint; raises `StaleClaim`."""
        said = self._said.pop(run, None)
        report = ClaimReport(
            job_id=run.job.id,
            session=run.job.session or "",
            token=run.job.token,
            started_ms=run.started_ms,
            progress=None if said is None else said.progress,
            checkpoint=checkpoint,
        )
        try:
            [held] = await self._control.claims.report([report])
        except StoreError:
            if said is not None:
                self._said.setdefault(run, said)
            raise
        if not held:
            raise StaleClaim(f"job {run.job.id}: the claim was lost; stop the work")

    @property
    def due(self) -> bool:
        """Whether something was said, and the last time it was sent is long enough ago."""
        return bool(self._said) and asyncio.get_running_loop().time() - self._sent_s > EVERY_S

    async def send(self) -> None:
        """Store what was said since the last time. Kept if the store is away, unless newer has come; whatever else goes
        wrong costs the reports and nothing more: endings go on."""
        if not self._said:
            return
        self._sent_s = asyncio.get_running_loop().time()
        # taken one by one: threads add to it meanwhile
        said = {run: report for run in list(self._said) if (report := self._said.pop(run, None)) is not None}
        try:
            answers = await self._control.claims.report(list(said.values()))
        except StoreError:
            for run, report in said.items():
                self._said.setdefault(run, report)
            raise
        except Exception:
            log.exception("reports could not be stored n=%d; the jobs go on", len(said))
            return
        for run, held in zip(said, answers, strict=True):
            if not held and not run.over:
                self._lost(run)
