"""One job that an engine is running: what it may do until when, how it is made to stop, and where its words go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..control import Extension
from ..model import Job, Progress
from .context import Context, Input, Stopped
from .ledger import OVERRAN, STALLED
from .outage import PASSING, Outage
from .program import Work

if TYPE_CHECKING:
    from .children import ChildRun
    from .engine import Engine

T = TypeVar("T")

#: later than everything
NEVER_MS = 1 << 62
#: the part of its grace for which a stopping job may wait for the store; the rest is left for its own cleanup
_GRACE_FOR_STORE = 0.75


class JobRun:
    """A job, its limits, and the task that runs it. It is the `Link` of its own context.

    Limits are judged by lease time, which no one can set: a step of the wall clock must not time anything out.
    """

    __slots__ = (
        "alone",
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
        "saving",
        "slot",
        "started_ms",
        "store_limits",
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
        self.alone = False
        """nothing else runs in its engine"""
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
        self.saving: asyncio.Lock | None = None
        """made by its first save: checkpoints are stored in the order in which the job saved them"""
        self.store_limits: set[asyncio.Timeout] = set()
        """of its calls to the store that are under way: a request to stop puts an end to them"""

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
        for limit in self.store_limits:
            limit.reschedule(self._give_up_at())

    # its words ----------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.engine.loop

    def progress(self, progress: Progress) -> None:
        self.engine.reports.note(self, progress)

    async def save(self, checkpoint: bytes) -> None:
        if self.saving is None:
            self.saving = asyncio.Lock()
        async with self.saving:
            await self._stored("save", lambda: self.engine.reports.now(self, checkpoint))

    async def extend(self) -> Extension:
        extension = await self._stored("extend", self._extend)
        if extension.granted:
            self.extra_ms += round(extension.granted_s * 1000)
            self.engine.record(self)
        return extension

    async def _extend(self) -> Extension:
        # the grant is decided from the stored row: what was said must be there first
        await self.engine.reports.now(self)
        control = self.engine.control
        extension = await control.claims.extend(self.job)
        if not extension.granted:
            # an earlier try may have been granted, and its answer lost on the way
            row = await control.jobs.get(self.job.id)
            if row.token == self.job.token and row.extra_ms > self.extra_ms:
                granted_s = (row.extra_ms - self.extra_ms) / 1000
                extension = msgspec.structs.replace(extension, granted_s=granted_s, why="granted at an earlier try")
        return extension

    async def inputs(self) -> list[Input]:
        return await self._stored("inputs", self._inputs)

    async def _inputs(self) -> list[Input]:
        control, unpack = self.engine.control, self.engine.program.unpack
        found = []
        for job in await control.store.get(await control.jobs.awaited(self.job.id)):
            if job is not None:
                result: Any = None if job.result is None else unpack(job.result)
                found.append(Input(id=job.id, name=job.name, status=job.status, result=result, error=job.error))
        return found

    async def _stored(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call to the store, and repeat it while the store is away: an outage is not the job's failure.

        A request to stop (cancel, timeout, drain) bounds the wait: the job then leaves here as `Stopped`, early enough
        to end within its grace. Its run timeout goes on; its stall timeout does not, since the job waits for us.
        """
        outage = Outage(f"{what} job_id={self.job.id}", self.engine.rng)
        limit = asyncio.timeout_at(self._give_up_at() if self.cause else None)
        try:
            async with limit:
                self.store_limits.add(limit)
                while True:
                    try:
                        answer = await call()
                    except PASSING as error:
                        if self.over:
                            raise
                        self.engine.reports.waiting(self)
                        await asyncio.sleep(outage.failed(error))
                    else:
                        outage.over()
                        return answer
        except TimeoutError:
            if limit.expired():
                raise Stopped(self.context.stopping or self.cause) from None
            raise
        finally:
            self.store_limits.discard(limit)

    def _give_up_at(self) -> float:
        """When a job that was asked to stop waits no longer for the store, by the loop's clock."""
        left_s = (self.kill_ms - self.engine.control.store.clock.lease_ms()) / 1000
        return self.loop.time() + max(0.0, left_s) * _GRACE_FOR_STORE
