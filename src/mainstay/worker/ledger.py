"""The ledger: ends of attempts on their way to the store, in batches.

An end is taken at once and written in one commit with all others of that moment. When the store is away, ends are kept
and written when it is back. If the job was given to another session by then, the store refuses the end and records it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from ..control import AttemptEnd, Control, Outcome, error_info, log_end
from ..errors import StoreError
from ..model import Job
from ..stores import AnyChange
from .outage import Outage
from .outbox import Recording
from .reports import Reports

log = logging.getLogger("mainstay.worker")

_MOST_TRIES = 20


class Ledger:
    """Add ends of attempts; they are written in the background, in the order given. Progress is written before them."""

    def __init__(self, control: Control, *, rng: random.Random, reports: Reports | None = None) -> None:
        self._control = control
        self._rng = rng
        self._reports = reports
        self.on_stored: Callable[[], None] = lambda: None
        """called when `unstored` may have become less"""
        self.unstored = 0
        """of the jobs whose ends are on their way, those that had begun: if this process dies they run again"""
        self._ends: list[AttemptEnd] = []
        self._writing: list[AttemptEnd] = []
        self._tries: Counter[str] = Counter()
        """by job id, of ends that were not simply written"""
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_writing(), name="mainstay ledger")

    async def stop(self) -> None:
        """Stop writing; `flush` first to write what is left."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    @property
    def jobs(self) -> list[Job]:
        """The jobs whose ends are not stored yet."""
        return [end.job for end in (*self._writing, *self._ends)]

    def add(self, end: AttemptEnd) -> None:
        """Take an end; it is on its way."""
        self._ends.append(end)
        if end.started_ms is not None:
            self.unstored += 1
        self._settled.clear()
        self._wanted.set()

    def wake(self) -> None:
        """Write progress, even if there is no end to write."""
        self._wanted.set()

    async def flush(self) -> None:
        """Wait until every end that was added is stored or refused."""
        await self._settled.wait()

    async def take(self) -> list[AnyChange]:
        """Stop writing: the changes that are not written yet, as they would have been."""
        left = [*self._writing, *self._ends]
        await self.stop()
        self._writing, self._ends = [], []
        self.unstored = 0
        self._settled.set()
        recording = Recording(self._control.store)
        elsewhere = Ledger(Control(recording, settings=self._control.settings, rng=self._rng), rng=self._rng)
        while left:
            await elsewhere._write_all(left)
            left, elsewhere._ends = elsewhere._ends, []
        return recording.changes

    async def _keep_writing(self) -> None:
        outage = Outage("acknowledge", self._rng)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            # what ends in this turn of the loop is written together
            await asyncio.sleep(0)
            self._writing, self._ends = self._ends, []
            try:
                if self._reports is not None:
                    await self._reports.send()
                await self._write_all(self._writing)
                outage.over()
            except StoreError as error:
                self._ends[:0] = self._writing
                self._writing = []
                await asyncio.sleep(outage.failed(error))
                self._wanted.set()
                continue
            self._writing = []
            if self._ends:
                self._wanted.set()
            else:
                self._tries.clear()
                self._settled.set()
            # ends that were added during the write, and those to be written again
            self.unstored = sum(end.started_ms is not None for end in self._ends)
            self.on_stored()

    async def _write_all(self, ends: list[AttemptEnd]) -> None:
        """Together; if that fails, and the store is not the reason, one by one to find the one that fails."""
        if not ends:
            return
        try:
            await self._write(ends)
        except StoreError:
            raise
        except Exception:
            log.exception("ends of attempts could not be written together n=%d; trying one by one", len(ends))
            while ends:
                await self._write_one(ends[0])
                ends.pop(0)

    async def _write_one(self, end: AttemptEnd) -> None:
        """An end that cannot be written is a failure. If that cannot be written either, the job is given back."""
        try:
            await self._write([end])
        except StoreError:
            raise
        except Exception as error:
            log.exception("end of attempt could not be written job_id=%s", end.job.id)
            if self._tries[end.job.id] < _MOST_TRIES:
                self._tries[end.job.id] = _MOST_TRIES
                self._fail(end, error)

    async def _write(self, ends: Sequence[AttemptEnd]) -> None:
        """Successes apart from the others, because a store writes them faster that way. It makes one commit of both."""
        successes = [end for end in ends if end.kind == "success"]
        if len(successes) == len(ends):
            await self._write_part(successes)
            return
        others = [end for end in ends if end.kind != "success"]
        parts = [self._write_part(part) for part in (successes, others) if part]
        for error in await asyncio.gather(*parts, return_exceptions=True):
            if error is not None:
                # one part may be written: when it is sent again, the store answers "already applied"
                raise error

    async def _write_part(self, ends: Sequence[AttemptEnd]) -> None:
        for end, outcome in zip(ends, await self._control.attempts.write(ends), strict=True):
            if end.kind == "failure":
                log_end(outcome)
            if outcome.outcome != "applied":
                self._follow_up(end, outcome)

    def _follow_up(self, end: AttemptEnd, outcome: Outcome) -> None:
        """An end that was not applied. A stale one needs nothing: the store records the refusal and control logs it."""
        job_id = end.job.id
        if outcome.outcome == "invalid" and outcome.error is not None and end.kind == "success":
            # done, but its result or the jobs it submits cannot be stored: that is a failure, and says why
            self._fail(end, outcome.error)
        elif outcome.outcome == "conflict" and self._tries[job_id] < _MOST_TRIES:
            self._tries[job_id] += 1
            self.add(end)
        elif outcome.outcome in ("invalid", "conflict", "missing"):
            log.error("end of attempt refused job_id=%s outcome=%s: %s", job_id, outcome.outcome, outcome.error)

    def _fail(self, end: AttemptEnd, error: Exception) -> None:
        info = error_info(error, retryable=False)
        failure = self._control.attempts.ends.failure(end.job, info, decide=end.policy)
        self.add(msgspec.structs.replace(failure, started_ms=end.started_ms))
