"""One job that an engine runs: its limits, and how it is asked to stop."""

from __future__ import annotations

import asyncio

from ..clock import Clock
from ..model import Job
from .children import ChildRun
from .job_context import Context
from .program import Work, keeps_time
from .recorder import Recorder

#: why a run is asked to stop; what is written about it depends on that
CANCELLED, OVERRAN, STALLED, DRAINED, LOST = "cancelled", "overran", "stalled", "drained", "lost"

#: later than everything
NEVER_MS = 1 << 62
#: the part of its grace for which a stopping job may wait for the store; the rest is left for its own cleanup
_GRACE_FOR_STORE = 0.75


class JobRun:
    """A job, its limits, and the task that runs it.

    Limits are measured in lease time, which nothing can set: a step of the wall clock must not time anything out.
    """

    def __init__(
        self,
        job: Job,
        work: Work,
        slot: int,
        *,
        clock: Clock,
        recorder: Recorder | None,
        began_ms: int,
        apart: bool,
        alone: bool,
        supervises: bool = False,
    ) -> None:
        self.job = job
        self.work = work
        self.slot = slot
        self._clock = clock
        self._recorder = recorder
        self.apart = apart
        """it runs in a child process"""
        self.alone = alone
        """nothing else runs in its engine"""
        self.supervises = supervises
        """it only supervises processes of its own (see `program.supervises`)"""
        self.keeps_time = keeps_time(work)
        """it counts its run timeout itself (see `program.keeps_time`)"""
        self.started_ms = clock.now_ms()
        """wall time, to be stored"""
        self.began_ms = self.progress_ms = began_ms
        """lease time, for the limits"""
        self.waits = apart
        """no child process has taken it yet: its time has not begun"""
        self.extra_ms = 0
        """run time that was granted since it began"""
        self.kill_ms = NEVER_MS
        """when its grace ends, once it was asked to stop"""
        self.cause = ""
        """why it was asked to stop"""
        self.begun = False
        """its task has had its first turn; if the task were cancelled before, it would end without a result"""
        self.over = False
        """it has ended, or was given up; what it still says and does is ignored"""
        self.context: Context
        self.task: asyncio.Task[None]
        self.child: ChildRun | None = None
        self.store_limits: dict[asyncio.Timeout, None] = {}
        """the time limits of its pending calls to the store: a request to stop shortens them"""

    # limits -------------------------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int:
        """When its run timeout or its stall timeout ends, whichever is first."""
        if self.waits:
            return NEVER_MS
        options = self.job.options
        ends = NEVER_MS
        if options.run_timeout_s is not None and not self.keeps_time:
            ends = self.began_ms + self.extra_ms + int(options.run_timeout_s * 1000)
        if options.stall_timeout_s is not None:
            ends = min(ends, self.progress_ms + int(options.stall_timeout_s * 1000))
        return ends

    @property
    def overrun(self) -> str:
        """Which of the two limits `deadline_ms` is."""
        stall_s = self.job.options.stall_timeout_s
        stalls = stall_s is not None and self.deadline_ms == self.progress_ms + int(stall_s * 1000)
        return STALLED if stalls else OVERRAN

    def move_stall_deadline(self) -> None:
        """It made progress, or waits for the store: its stall timeout begins again."""
        self.progress_ms = self._clock.lease_ms()
        if self.job.options.stall_timeout_s is not None:
            self._record_deadline()

    def extend(self, granted_s: float) -> None:
        """It was granted more run time."""
        self.extra_ms += round(granted_s * 1000)
        self._record_deadline()

    def start_in_child(self) -> None:
        """A child process has taken it: its time begins."""
        self.waits = False
        self.started_ms = self._clock.now_ms()
        self.began_ms = self.progress_ms = self._clock.lease_ms()
        self.record_start()

    # stop ---------------------------------------------------------------------------------------

    def stop(self, cause: str, why: str, *, grace_s: float | None = None) -> None:
        """Ask it to stop within the grace (None: the job's own). A second request can only shorten the grace."""
        if grace_s is None:
            grace_s = self.job.options.grace_s
        self.kill_ms = min(self.kill_ms, self._clock.lease_ms() + int(grace_s * 1000))
        if not self.cause:
            self.cause = cause
            self.context.stop(why)
            if self.child is not None:
                self.child.stop(why)
            elif self.begun and self.work.is_async and not self.apart:
                self.task.cancel()
            for limit in self.store_limits:
                limit.reschedule(self.store_deadline_s)
        self._record_deadline()
        if self.child is not None and grace_s == 0:
            self.child.kill()

    def lose_claim(self) -> None:
        """Another session has the job: stop it, and write nothing about it."""
        self.stop(LOST, "its claim was lost")

    @property
    def store_deadline_s(self) -> float:
        """When a job that was asked to stop no longer waits for the store, by the loop's clock."""
        left_s = (self.kill_ms - self._clock.lease_ms()) / 1000
        return asyncio.get_running_loop().time() + max(0.0, left_s) * _GRACE_FOR_STORE

    # the flight recorder ------------------------------------------------------------------------

    def record_start(self) -> None:
        """Show the supervisor that it runs."""
        if self._recorder is not None:
            self._recorder.begin(
                self.slot,
                self.job.id,
                token=self.job.token,
                # it stores its start itself
                started_ms=0 if self.supervises else self.started_ms,
                deadline_ms=self._recorded_deadline_ms,
                apart=self.apart or self.supervises,
            )

    def record_end(self) -> None:
        """Show the supervisor that it no longer runs."""
        if self._recorder is not None:
            self._recorder.end(self.slot)

    def _record_deadline(self) -> None:
        if self._recorder is not None and not self.over and not self.waits:
            self._recorder.move_deadline(self.slot, self._recorded_deadline_ms)

    @property
    def _recorded_deadline_ms(self) -> int:
        """The deadline for the supervisor, which waits for the grace as well; 0: none."""
        if self.cause:
            return 0 if self.kill_ms == NEVER_MS else self.kill_ms
        ends = self.deadline_ms
        return 0 if ends == NEVER_MS else ends + int(self.job.options.grace_s * 1000)
