"""One job that an engine is running: what it may do until when, how it is made to stop, and where its words go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..control import Extension
from ..model import Job, Progress
from .context import Context, Input
from .ledger import OVERRAN, STALLED
from .program import Work

if TYPE_CHECKING:
    from .children import ChildRun
    from .engine import Engine

#: later than everything
NEVER_MS = 1 << 62


class Run:
    """A job, its limits, and the task that runs it. It is the `Link` of its own context.

    Limits are judged by lease time, which no one can set: a step of the wall clock must not time anything out.
    """

    __slots__ = (
        "apart",
        "began_ms",
        "begun",
        "cause",
        "child",
        "context",
        "engine",
        "extra_ms",
        "job",
        "kill_ms",
        "over",
        "progress_ms",
        "slot",
        "started_ms",
        "task",
        "waits",
        "work",
    )

    def __init__(
        self, engine: Engine, job: Job, work: Work, slot: int, *, apart: bool, started_ms: int, began_ms: int
    ) -> None:
        self.engine = engine
        self.job = job
        self.work = work
        self.slot = slot
        self.apart = apart
        """it runs in a child process"""
        self.started_ms = started_ms
        """wall time, to be stored"""
        self.began_ms = self.progress_ms = began_ms
        """lease time, to be judged by"""
        self.waits = apart
        """for a child process to take it: its time has not begun"""
        self.extra_ms = 0
        self.kill_ms = NEVER_MS
        """once it was told to stop: when its grace is over"""
        self.cause = ""
        """why it was told to stop"""
        self.begun = False
        """its task has had its first turn; before that, cancelling the task would end it without a word"""
        self.over = False
        """it has ended, or was given up; what it still says and does is nobody's business"""
        self.context = Context(job, self, pack=engine.program.pack, unpack=engine.program.unpack)
        self.task: asyncio.Task[None]
        self.child: ChildRun | None = None

    # limits -------------------------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int:
        """When its run or its patience ends, whichever is first."""
        if self.waits:
            return NEVER_MS
        options = self.job.options
        ends = NEVER_MS
        if options.run_timeout_s is not None:
            ends = self.began_ms + self.extra_ms + int(options.run_timeout_s * 1000)
        if options.stall_timeout_s is not None:
            ends = min(ends, self.progress_ms + int(options.stall_timeout_s * 1000))
        return ends

    @property
    def recorded_deadline_ms(self) -> int:
        """The same for the supervisor, which waits for the grace as well; 0: none."""
        ends = self.kill_ms if self.cause else self.deadline_ms
        if ends == NEVER_MS:
            return 0
        return ends if self.cause else ends + int(self.job.options.grace_s * 1000)

    @property
    def overrun(self) -> str:
        """Which of the two limits it is that `deadline_ms` stands for."""
        stall_s = self.job.options.stall_timeout_s
        stalls = stall_s is not None and self.deadline_ms == self.progress_ms + int(stall_s * 1000)
        return STALLED if stalls else OVERRAN

    def taken(self, *, started_ms: int, began_ms: int) -> None:
        """A child process has taken it: its time begins."""
        self.waits = False
        self.started_ms = started_ms
        self.began_ms = self.progress_ms = began_ms

    def halt(self, cause: str, why: str, *, kill_ms: int) -> None:
        """Tell it to stop, by then. Told again, it has until the earlier of the two."""
        self.kill_ms = min(self.kill_ms, kill_ms)
        if self.cause:
            return
        self.cause = cause
        self.context.stop(why)
        if self.child is not None:
            self.child.stop(why)
        elif self.begun and self.work.is_async and not self.apart:
            self.task.cancel()

    # its words ----------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.engine.loop

    def progress(self, progress: Progress) -> None:
        self.engine.reports.note(self, progress)

    async def save(self, checkpoint: bytes) -> None:
        await self.engine.reports.now(self, checkpoint)

    async def extend(self) -> Extension:
        # the grant is decided from the stored row: what was said must be there first
        await self.engine.reports.now(self)
        extension = await self.engine.control.extend(self.job)
        if extension.granted:
            self.extra_ms += round(extension.granted_s * 1000)
            self.engine.record(self)
        return extension

    async def inputs(self) -> list[Input]:
        control, unpack = self.engine.control, self.engine.program.unpack
        found = []
        for job in await control.store.get(await control.awaited(self.job.id)):
            if job is not None:
                result: Any = None if job.result is None else unpack(job.result)
                found.append(Input(id=job.id, name=job.name, status=job.status, result=result, error=job.error))
        return found
