"""One job that an engine is running: what it may do until when, and how it is made to stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..control import Extension
from ..model import Job, Progress
from .context import Context, Input
from .ledger import OVERRAN, STALLED
from .program import Work

if TYPE_CHECKING:
    from .children import ChildRun
    from .engine import Engine

#: a plain function or a coroutine that goes on after it was told to stop cannot be ended; a child process can
_NEVER = 1 << 62


class Run:
    """A job, its limits, and the task that runs it."""

    __slots__ = (
        "apart",
        "begun",
        "cause",
        "child",
        "context",
        "extra_ms",
        "job",
        "kill_ms",
        "over",
        "progress_ms",
        "slot",
        "started_ms",
        "task",
        "work",
    )

    def __init__(self, job: Job, work: Work, slot: int, started_ms: int) -> None:
        self.job = job
        self.work = work
        self.slot = slot
        self.started_ms = started_ms
        self.progress_ms = started_ms
        self.extra_ms = 0
        self.kill_ms = _NEVER
        """once it was told to stop: when its grace is over"""
        self.cause = ""
        """why it was told to stop"""
        self.apart = False
        """it runs in a child process"""
        self.begun = False
        """its task has had its first turn; before that, cancelling the task would end it without a word"""
        self.over = False
        """its ending is in the ledger; what it still does is nobody's business"""
        self.context: Context
        self.task: asyncio.Task[None]
        self.child: ChildRun | None = None

    @property
    def deadline_ms(self) -> int:
        """When its run or its patience ends, whichever is first."""
        options = self.job.options
        ends = _NEVER
        if options.run_timeout_s is not None:
            ends = self.started_ms + self.extra_ms + int(options.run_timeout_s * 1000)
        if options.stall_timeout_s is not None:
            ends = min(ends, self.progress_ms + int(options.stall_timeout_s * 1000))
        return ends

    @property
    def recorded_deadline_ms(self) -> int:
        """The same for the supervisor, which waits for the grace as well; 0: none."""
        ends = self.kill_ms if self.cause else self.deadline_ms
        if ends == _NEVER:
            return 0
        return ends if self.cause else ends + int(self.job.options.grace_s * 1000)

    @property
    def overrun(self) -> str:
        """Which of the two limits it is that `deadline_ms` stands for."""
        stall_s = self.job.options.stall_timeout_s
        stalls = stall_s is not None and self.deadline_ms == self.progress_ms + int(stall_s * 1000)
        return STALLED if stalls else OVERRAN


class EngineLink:
    """Where the words of a job in this process go."""

    def __init__(self, engine: Engine, run: Run) -> None:
        self.loop = engine.loop
        self._engine = engine
        self._run = run

    def progress(self, progress: Progress) -> None:
        run = self._run
        report = self._engine.control.progress(run.job, progress.done, progress.total, progress.message)
        self._engine.note(run, report)

    async def save(self, checkpoint: bytes) -> None:
        await self._engine.report_now(self._run, checkpoint)

    async def extend(self) -> Extension:
        run = self._run
        # the grant is decided from the stored row: what was said must be there first
        await self._engine.report_now(run)
        extension = await self._engine.control.extend(run.job)
        if extension.granted:
            run.extra_ms += round(extension.granted_s * 1000)
            self._engine.record(run)
        return extension

    async def inputs(self) -> list[Input]:
        control, unpack = self._engine.control, self._engine.program.unpack
        found = []
        for job in await control.store.get(await control.awaited(self._run.job.id)):
            if job is not None:
                result = None if job.result is None else unpack(job.result)
                found.append(Input(id=job.id, name=job.name, status=job.status, result=result, error=job.error))
        return found
