"""The limits of running jobs: run timeout, stall timeout and grace, checked ten times a second while there are jobs."""

from __future__ import annotations

import asyncio

from ..clock import Clock
from .ledger import Ledger
from .recorder import Recorder
from .reports import Reports
from .run import JobRun
from .runs import Runs

TICK_S = 0.1


class RunLimits:
    """A job over its limit is asked to stop. When its grace is over, its child process is killed; a thread or coroutine
    cannot be killed and is left behind."""

    def __init__(
        self, runs: Runs, ledger: Ledger, reports: Reports, *, clock: Clock, recorder: Recorder | None
    ) -> None:
        self._runs = runs
        self._ledger = ledger
        self._reports = reports
        self._clock = clock
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        self._ticked_s = 0.0
        self._was_late = False

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await self._runs.busy.wait()
            self._ticked_s = self._loop.time()
            while self._runs.busy.is_set():
                await asyncio.sleep(TICK_S)
                self.tick()

    def tick(self) -> None:
        if self._recorder is not None:
            self._recorder.tick()
        now_ms = self._clock.lease_ms()
        for run in self._runs:
            self._check(run, now_ms)
        self._give_back_stale(self._loop.time())
        if self._reports.due:
            self._ledger.wake()

    def _check(self, run: JobRun, now_ms: int) -> None:
        if not run.cause:
            if now_ms >= run.deadline_ms:
                run.stop(run.overrun, run.overrun)
        elif now_ms >= run.kill_ms:
            if run.child is not None:
                run.child.kill()
            else:
                self._runs.leave_behind(run)

    def _give_back_stale(self, now_s: float) -> None:
        """Except at the first tick after the loop stood still: then jobs waited for the loop, and begin now."""
        is_late, self._ticked_s = now_s - self._ticked_s > 2 * TICK_S, now_s
        first_late, self._was_late = is_late and not self._was_late, is_late
        if not first_late:
            self._runs.give_back_stale(now_s)
