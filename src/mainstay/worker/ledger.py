"""The ledger: endings on their way to the store, in batches.

An ending is taken at once and written with all others that came meanwhile, in one commit. When the store is away they
are kept and tried again until it is back; what was given to somebody else by then is refused there, and recorded.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from ..control import Completion, Control, Decide, Failure, Outcome, Quarantine, error_info
from ..control.ended_log import log_end
from ..errors import InvalidInput, StoreError
from ..model import Job
from ..stores import Change
from .endings import Crashed, Done, Ending, Failed, Halted, Misfit, NotNeeded, PutOff
from .outage import Outage
from .outbox import Recording

log = logging.getLogger("mainstay.worker")

#: why a run was made to stop; what is written about it depends on that
CANCELLED, OVERRAN, STALLED, DRAINED, LOST = "cancelled", "overran", "stalled", "drained", "lost"

_MOST_TRIES = 20


class Parked(msgspec.Struct, frozen=True):
    """This worker has no work of that name: it waits for one that has."""

    wait_s: float
    reason: str


class LedgerEntry(msgspec.Struct, gc=False):
    """One job and how it ended."""

    job: Job
    ending: Ending | Parked
    started_ms: int | None = None
    cause: str = ""
    """for what was halted: why"""
    decide: Decide | None = None
    """the retry policy of its task, if it has one"""
    tries: int = 0


class Ledger:
    """Add endings; they are written in the background, in the order they came."""

    def __init__(
        self,
        control: Control,
        *,
        rng: random.Random,
        before_write: Callable[[], Awaitable[None]] | None = None,
        on_stored: Callable[[], None] | None = None,
    ) -> None:
        self._control = control
        self._rng = rng
        self._before_write = before_write
        """what has to be stored before endings are; only the store may stop it"""
        self._on_stored = on_stored
        """called when `unstored` may have become less"""
        self.unstored = 0
        """of the jobs whose endings are on their way, those that had begun: if this process dies they run again"""
        self._entries: list[LedgerEntry] = []
        self._writing: list[LedgerEntry] = []
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
        """Those whose endings are not stored yet."""
        return [entry.job for entry in (*self._writing, *self._entries)]

    def add(self, entry: LedgerEntry) -> None:
        """Take an ending; it is on its way."""
        self._entries.append(entry)
        if entry.started_ms is not None:
            self.unstored += 1
        self._settled.clear()
        self._wanted.set()

    def wake(self) -> None:
        """Have done what comes before a write, also if there is no ending."""
        self._wanted.set()

    async def flush(self) -> None:
        """Wait until everything that was added is stored or refused."""
        await self._settled.wait()

    async def take(self) -> list[Change]:
        """Stop writing: the changes that are not written yet, as they would have been."""
        left = [*self._writing, *self._entries]
        await self.stop()
        self._writing, self._entries = [], []
        self.unstored = 0
        self._settled.set()
        recording = Recording(self._control.store)
        control = Control(recording, settings=self._control.settings, rng=self._rng)
        elsewhere = Ledger(control, rng=self._rng)
        await elsewhere._write_all(left)
        return recording.changes

    async def _keep_writing(self) -> None:
        outage = Outage("acknowledge", self._rng)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            # what ends in this turn of the loop goes together
            await asyncio.sleep(0)
            self._writing, self._entries = self._entries, []
            try:
                if self._before_write is not None:
                    await self._before_write()
                await self._write_all(self._writing)
                outage.over()
            except StoreError as error:
                self._entries[:0] = self._writing
                self._writing = []
                await asyncio.sleep(outage.failed(error))
                self._wanted.set()
                continue
            self._writing = []
            if self._entries:
                self._wanted.set()
            else:
                self._settled.set()
            # what came meanwhile, and what has to be written again
            self.unstored = sum(entry.started_ms is not None for entry in self._entries)
            if self._on_stored is not None:
                self._on_stored()

    async def _write_all(self, entries: list[LedgerEntry]) -> None:
        """Together; if that fails through no fault of the store, one by one, so that it shows which one it is."""
        if not entries:
            return
        try:
            await self._write(entries)
        except StoreError:
            raise
        except Exception:
            log.exception("endings could not be written together n=%d; one by one", len(entries))
            while entries:
                await self._write_one(entries[0])
                entries.pop(0)

    async def _write_one(self, entry: LedgerEntry) -> None:
        """An ending that cannot be written is a failure; one of which not even that can be said is given back."""
        try:
            await self._write([entry])
        except StoreError:
            raise
        except Exception as error:
            log.exception("ending could not be written job_id=%s", entry.job.id)
            if entry.tries < _MOST_TRIES:
                entry.tries = _MOST_TRIES
                entry.ending = Failed(error=error_info(error, retryable=False))
                self.add(entry)

    async def _write(self, entries: Sequence[LedgerEntry]) -> None:
        """All endings at once; the store makes one commit of what is asked for at the same time."""
        done = [entry for entry in entries if type(entry.ending) is Done]
        if len(done) == len(entries):
            await self._complete(done)
            return
        writes: list[Awaitable[None]] = [self._complete(done)] if done else []
        failed = [entry for entry in entries if isinstance(entry.ending, Failed | Misfit | Crashed)]
        if failed:
            writes.append(self._fail(failed))
        writes += [self._alone(entry) for entry in entries if isinstance(entry.ending, PutOff | NotNeeded | Parked)]
        halted: dict[tuple[str, bool], list[LedgerEntry]] = {}
        for entry in entries:
            if isinstance(entry.ending, Halted):
                halted.setdefault((entry.cause, entry.started_ms is not None), []).append(entry)
        writes += [self._halt(cause, these, begun=begun) for (cause, begun), these in halted.items()]
        results = await asyncio.gather(*writes, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                # parts may be written: what is sent again is answered with "already applied"
                raise result

    async def _complete(self, entries: Sequence[LedgerEntry]) -> None:
        completions = [
            Completion(entry.job, entry.ending.result, entry.ending.followups, None, entry.started_ms)
            for entry in entries
            if isinstance(entry.ending, Done)
        ]
        for entry, outcome in zip(entries, await self._control.attempts.complete(completions), strict=True):
            if outcome.outcome == "applied":
                continue
            if outcome.outcome == "invalid" and outcome.error is not None:
                # done, but what it returned or submits cannot be stored: that is a failure, and says why
                entry.ending = Failed(error=error_info(outcome.error, retryable=False))
                self.add(entry)
            else:
                self._look_at(entry, outcome)

    async def _fail(self, entries: Sequence[LedgerEntry]) -> None:
        failures = [_failure(entry) for entry in entries]
        for entry, outcome in zip(entries, await self._control.attempts.fail(failures), strict=True):
            log_end(outcome)
            self._look_at(entry, outcome)

    async def _halt(self, cause: str, entries: Sequence[LedgerEntry], *, begun: bool) -> None:
        jobs = [entry.job for entry in entries]
        if cause == CANCELLED:
            outcomes = await self._control.attempts.confirm_cancelled(jobs)
        elif cause not in (OVERRAN, STALLED):
            # also what stopped although nobody asked: it goes back rather than nowhere
            reason = "its worker stopped" if begun else "its worker gave it back before it began"
            outcomes = await self._control.attempts.release(jobs, reason=reason)
        else:
            limit: Literal["run", "stall"] = "stall" if cause == STALLED else "run"
            outcomes = await self._control.attempts.time_out(
                jobs, cause=limit, decide=[entry.decide for entry in entries]
            )
            for outcome in outcomes:
                log_end(outcome)
        for entry, outcome in zip(entries, outcomes, strict=True):
            self._look_at(entry, outcome)

    async def _alone(self, entry: LedgerEntry) -> None:
        job, ending = entry.job, entry.ending
        try:
            if isinstance(ending, PutOff):
                outcome = await self._control.attempts.snooze(
                    job, timedelta(seconds=ending.wait_s), reason=ending.reason
                )
            elif isinstance(ending, NotNeeded):
                outcome = await self._control.attempts.skip(job, reason=ending.reason)
            else:
                assert isinstance(ending, Parked)
                wait = timedelta(seconds=ending.wait_s)
                outcome = (await self._control.attempts.park([job], wait=wait, reason=ending.reason))[0]
        except InvalidInput as error:
            # a wait or a reason that cannot be meant is a mistake in the job
            entry.ending = Failed(error=error_info(error, retryable=False))
            self.add(entry)
            return
        self._look_at(entry, outcome)

    def _look_at(self, entry: LedgerEntry, outcome: Outcome) -> None:
        """What was not simply written. A ghost's refusal is recorded by the store and logged by control."""
        if outcome.outcome == "conflict" and entry.tries < _MOST_TRIES:
            entry.tries += 1
            self.add(entry)
        elif outcome.outcome in ("invalid", "conflict", "missing"):
            log.error("ending refused job_id=%s outcome=%s: %s", entry.job.id, outcome.outcome, outcome.error)


def _failure(entry: LedgerEntry) -> Failure:
    ending = entry.ending
    if isinstance(ending, Misfit):
        why = f"its arguments do not fit the task: {ending.error.message}"
        return Failure(entry.job, ending.error, decide=lambda *_: Quarantine(why))
    if isinstance(ending, Crashed):
        return Failure(entry.job, ending.error, crashed=True)
    assert isinstance(ending, Failed)
    return Failure(entry.job, ending.error, decide=entry.decide, after_s=ending.after_s)
