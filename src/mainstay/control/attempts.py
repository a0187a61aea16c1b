"""How workers end what they claimed: complete, fail, time out, release, snooze, park, skip, confirm a cancel.

`AttemptEnds` makes an end ready to be written; `Attempts` writes ends in batches. Every write carries the claim: the
session and token of the row as it was claimed. The first try is made from that row, without reading; only a row that
was changed since (a cancel, a note) is read again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import msgspec

from ..clock import seconds
from ..errors import InvalidInput, MainstayError
from ..lifecycle import Move, completion
from ..model import ErrorInfo, Job, Settings
from .failure import bounded, error_info, shown
from .job_factory import JobRequest
from .jobs import JobService
from .options import check_text
from .payload import as_given, encoded
from .rules import attempts, cancellation, overdue
from .rules.retry import Decide, after_crash, after_failure
from .writer import Decision, MoveRequest, Moves, Outcome, Writer


class Completion(msgspec.Struct, frozen=True):
    """An attempt that succeeded."""

    job: Job
    """the row as claimed"""
    result: Any = None
    """any data; `msgspec.Raw` is msgpack already, and is stored as it is"""
    spawn: tuple[JobRequest, ...] = ()
    """jobs submitted in the same transaction, if and only if the completion is accepted"""
    on_last: Move | None = None
    """for a unit: moves its parent, in the same transaction, if it was the last"""
    started_ms: int | None = None
    """when the work began, for the audit trail"""


class Failure(msgspec.Struct, frozen=True):
    """An attempt that failed."""

    job: Job
    """the row as claimed"""
    error: ErrorInfo | BaseException
    """the exception, or its `error_info`"""
    decide: Decide | None = None
    """a retry policy to use instead of the job's"""
    after_s: float | None = None
    """the wait before the next attempt, if there is one, instead of the backoff"""
    crashed: bool = False
    """it took its process down: counts against the crash budget, and is tried again at once"""
    on_last: Move | None = None


class AttemptEnd(MoveRequest, frozen=True, gc=False):
    """The end of an attempt, ready to be written: a move of the job by the session that holds it."""

    started_ms: int | None = None
    """when the work began; None: not known, or it had not begun"""
    kind: Literal["success", "failure", "other"] = "other"
    """a failure may be a crash or a timeout, too; the others count neither way: release, snooze, park, skip, cancel"""
    policy: Decide | None = None
    """the retry policy to use instead of the job's, also if a success has to be written as a failure"""


class AttemptEnds:
    """Makes ends of attempts. An end that its job does not allow is refused when it is written, as the outcome of that
    job. Arguments that no job allows are refused here, with `InvalidInput`."""

    def __init__(self, jobs: JobService, settings: Settings, rng: random.Random) -> None:
        self._jobs = jobs
        self._limit = settings.payload_limit
        self._rng = rng

    def success(
        self,
        job: Job,
        result: Any = None,
        spawn: Sequence[JobRequest] = (),
        *,
        on_last: Move | None = None,
        started_ms: int | None = None,
        decide: Decide | None = None,
    ) -> AttemptEnd:
        """The work is done. If the result cannot be stored, the outcome is `invalid` and the job stays running: fail
        it with the error of the outcome, and by the policy `decide`."""
        try:
            if result is None:
                data = None
            elif type(result) is msgspec.Raw:
                data = as_given(result, field="result", limit=self._limit)
            else:
                data = encoded(result, field="result", limit=self._limit)
            new_jobs = self._jobs.new_jobs(spawn, actor=job.session) if spawn else ()
            holder = _holder(job)
        except MainstayError as error:
            return AttemptEnd(job, _refuse(error), "", started_ms=started_ms, kind="success", policy=decide)
        success = partial(_succeed, data, started_ms)
        return AttemptEnd(job, success, holder, holder, new_jobs, on_last, started_ms, "success", decide)

    def failure(
        self,
        job: Job,
        error: ErrorInfo | BaseException,
        *,
        decide: Decide | None = None,
        after_s: float | None = None,
        crashed: bool = False,
        on_last: Move | None = None,
    ) -> AttemptEnd:
        """The attempt failed; the policy decides what follows, in the same transaction."""
        given: object = error_info(error) if isinstance(error, BaseException) else error
        if not isinstance(given, ErrorInfo):
            rule = f"{shown(given)} is not an error; wrap an exception with error_info()"
            return _end(job, _refuse(InvalidInput("error", rule)))
        info = bounded(given)

        def fail(row: Job, now_ms: int) -> Moves:
            if crashed:
                return attempts.crash(row, info, after_crash(row), now_ms=now_ms, to="failed")
            verdict = after_failure(row, info, rng=self._rng, decide=decide, after_s=after_s)
            return attempts.fail(row, info, verdict, now_ms=now_ms)

        return _end(job, fail, "failure", on_last)

    def timeout(
        self, job: Job, cause: Literal["run", "stall"], *, decide: Decide | None = None, how: str = ""
    ) -> AttemptEnd:
        """Its worker stopped it at its run timeout, or because it stalled. `how`: the time and the limit, of work that
        counts its time itself."""
        if cause not in ("run", "stall"):
            raise InvalidInput("cause", f"{cause!r} is not one of run, stall")

        def time_out(row: Job, now_ms: int) -> Moves:
            stalled = cause == "stall"
            return overdue.time_out(row, stalled=stalled, now_ms=now_ms, rng=self._rng, decide=decide, how=how)

        return _end(job, time_out, "failure")

    def release(self, job: Job, reason: str, *, lost: bool = False) -> AttemptEnd:
        """The claim is given back; no failure is counted. `lost`: see `Attempts.release`."""
        check_text(reason, field="reason", limit=1000)
        return _end(job, lambda row, _: attempts.release(row, reason, lost=lost))

    def snooze(self, job: Job, wait: str | timedelta, reason: str | None = None) -> AttemptEnd:
        """The job postponed itself; no failure is counted."""
        wait_s = _checked_wait(wait, field="snooze")
        if reason is not None:
            check_text(reason, field="reason", limit=1000)
        return _end(job, lambda row, now_ms: attempts.snooze(row, wait_s, reason, now_ms=now_ms))

    def park(self, job: Job, wait: str | timedelta, reason: str) -> AttemptEnd:
        """Its worker cannot run it; neither a failure nor a start is counted."""
        wait_s = _checked_wait(wait, field="wait")
        check_text(reason, field="reason", limit=1000)
        return _end(job, lambda row, now_ms: attempts.park(row, wait_s, reason, now_ms=now_ms))

    def skip(self, job: Job, reason: str) -> AttemptEnd:
        """The job found that it is not needed."""
        check_text(reason, field="reason", limit=1000)
        return _end(job, lambda row, _: attempts.skip(row, reason))

    def cancellation(self, job: Job, reason: str | None = None) -> AttemptEnd:
        """The work has stopped, as a cancel asked."""
        if reason is not None:
            check_text(reason, field="reason", limit=1000)
        return _end(job, lambda row, _: cancellation.confirm(row, reason))


class Attempts:
    """Ends attempts, in batches: one outcome for each, in the order given."""

    def __init__(self, writer: Writer, ends: AttemptEnds) -> None:
        self._writer = writer
        self.ends = ends

    async def write(self, ends: Sequence[AttemptEnd]) -> list[Outcome]:
        """Write ends of attempts, in one commit."""
        return await self._writer.write(ends)

    async def complete(self, done: Sequence[Completion]) -> list[Outcome]:
        """Settle successes, in one commit. A result that cannot be stored makes that completion `invalid`
        and leaves the job running: fail it with the error of the outcome."""
        success = self.ends.success
        return await self.write(
            [
                success(item.job, item.result, item.spawn, on_last=item.on_last, started_ms=item.started_ms)
                for item in done
            ]
        )

    async def fail(self, failures: Sequence[Failure]) -> list[Outcome]:
        """Count failures and let the policy of each job decide what follows, in the same transaction."""
        return await self.write(
            [
                self.ends.failure(
                    item.job,
                    item.error,
                    decide=item.decide,
                    after_s=item.after_s,
                    crashed=item.crashed,
                    on_last=item.on_last,
                )
                for item in failures
            ]
        )

    async def time_out(
        self, jobs: Sequence[Job], *, cause: Literal["run", "stall"], decide: Sequence[Decide | None] | None = None
    ) -> list[Outcome]:
        """End runs that their worker stopped at their run timeout, or because they stalled. `decide` has a retry policy
        for each job, or None for the job's own; a job that is held when it stalls is held under any policy."""
        policies = [None] * len(jobs) if decide is None else decide
        if len(policies) != len(jobs):
            raise InvalidInput("decide", f"{len(policies)} policies for {len(jobs)} jobs; give one each, or None")
        return await self.write(
            [self.ends.timeout(job, cause, decide=policy) for job, policy in zip(jobs, policies, strict=True)]
        )

    async def release(self, jobs: Sequence[Job], *, reason: str, lost: bool = False) -> list[Outcome]:
        """Give claims back (a drain): no failure is counted. `lost`: their session died through no fault of theirs,
        which is counted in `losses` besides `releases`."""
        return await self.write([self.ends.release(job, reason, lost=lost) for job in jobs])

    async def snooze(self, job: Job, wait: str | timedelta, *, reason: str | None = None) -> Outcome:
        """Postpone a job at its own request: no failure is counted."""
        return (await self.write([self.ends.snooze(job, wait, reason)]))[0]

    async def park(self, jobs: Sequence[Job], *, wait: str | timedelta, reason: str) -> list[Outcome]:
        """Postpone jobs that this worker cannot run (an unknown task): neither a failure nor a start is counted."""
        return await self.write([self.ends.park(job, wait, reason) for job in jobs])

    async def skip(self, job: Job, *, reason: str) -> Outcome:
        """End a job that found that it is not needed."""
        return (await self.write([self.ends.skip(job, reason)]))[0]

    async def confirm_cancelled(self, jobs: Sequence[Job], *, reason: str | None = None) -> list[Outcome]:
        """The work has stopped, as asked."""
        return await self.write([self.ends.cancellation(job, reason) for job in jobs])


def _end(
    job: Job, decide: Decision, kind: Literal["success", "failure", "other"] = "other", on_last: Move | None = None
) -> AttemptEnd:
    try:
        holder = _holder(job)
    except InvalidInput as error:
        return AttemptEnd(job, _refuse(error), "", kind=kind)
    return AttemptEnd(job, decide, holder, holder, (), on_last, kind=kind)


def _refuse(error: MainstayError) -> Decision:
    """A decision that refuses: the error is the outcome of that job, and the rest of the batch is written."""

    def decide(*_: object) -> Moves:
        raise error

    return decide


def _succeed(result: bytes | None, started_ms: int | None, job: Job, now_ms: int) -> Moves:
    """A success that raced a cancel has won."""
    del now_ms
    return (completion(result, starts=attempts.begun(job), started_ms=started_ms),)


def _holder(job: Job) -> str:
    if job.session is None:
        raise InvalidInput("job", f"{job.id} is {job.status} and has no owner; pass the row as it was claimed")
    return job.session


def _checked_wait(wait: str | timedelta, *, field: str) -> float:
    wait_s = seconds(wait, field=field)
    if not 0 < wait_s < 1e9:
        raise InvalidInput(field, f"{wait_s!r} seconds is not a wait")
    return wait_s
