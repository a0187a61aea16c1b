"""How workers hand back what they claimed: complete, fail, time out, release, snooze, park, skip, confirm
a cancel.

Every write carries the claim: the session and token of the row as it was claimed. The first try is made from that
row, without reading; only what somebody moved meanwhile (a cancel, a note) is looked at again.
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
from ..lifecycle import Chain, Move, Moved, succeed
from ..model import ErrorInfo, Job, Settings
from .failure import bounded, error_info, shown
from .job_factory import JobRequest
from .jobs import JobService
from .options import check_text
from .payload import as_given, encoded
from .rules import attempts, cancellation, overdue
from .rules.retry import Decide, after_crash, after_failure
from .writer import Decision, Moves, Outcome, Wish, Writer


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
    """what `error_info` made of the exception, or the exception itself"""
    decide: Decide | None = None
    """a retry policy of its own, instead of the job's"""
    after_s: float | None = None
    """the wait before the next attempt, if there is one, instead of the backoff"""
    crashed: bool = False
    """it took its process down: counts against the crash budget, and is tried again at once"""
    on_last: Move | None = None


class Attempts:
    """The worker's side of a job's end."""

    def __init__(self, writer: Writer, jobs: JobService, settings: Settings, rng: random.Random) -> None:
        self._writer = writer
        self._chain = writer.chain
        self._jobs = jobs
        self._limit = settings.payload_limit
        self._rng = rng

    async def complete(self, done: Sequence[Completion]) -> list[Outcome]:
        """Settle successes, in one commit. A result that cannot be stored makes that completion `invalid`
        and leaves the job running: fail it with the error of the outcome."""
        refused: dict[int, Outcome] = {}
        wishes = []
        chain = self._chain
        for index, item in enumerate(done):
            job = item.job
            try:
                result = item.result
                if result is None:
                    data = None
                elif type(result) is msgspec.Raw:
                    data = as_given(result, field="result", limit=self._limit)
                else:
                    data = encoded(result, field="result", limit=self._limit)
                spawn = self._jobs.new_jobs(item.spawn, actor=job.session) if item.spawn else ()
                holder = _holder(job)
            except MainstayError as error:
                refused[index] = Outcome("invalid", job, error)
                continue
            decide = partial(_succeed, data, item.started_ms, holder, chain)
            wishes.append(Wish(job, decide, holder, holder, spawn, item.on_last))
        outcomes = await self._writer.write(wishes)
        return _merged(outcomes, refused) if refused else outcomes

    async def fail(self, failures: Sequence[Failure]) -> list[Outcome]:
        """Count failures and let the policy of each job decide what follows, in the same transaction."""
        return await self._write(
            [item.job for item in failures],
            [self._failing(item) for item in failures],
            [item.on_last for item in failures],
        )

    async def time_out(
        self, jobs: Sequence[Job], *, cause: Literal["run", "stall"], decide: Sequence[Decide | None] | None = None
    ) -> list[Outcome]:
        """End runs that their worker stopped at their run timeout, or because they stalled. `decide` has a retry policy
        for each job, or None for the job's own; a stall that is to be held is held whatever a policy would say."""
        if cause not in ("run", "stall"):
            raise InvalidInput("cause", f"{cause!r} is not one of run, stall")
        policies = [None] * len(jobs) if decide is None else list(decide)
        if len(policies) != len(jobs):
            raise InvalidInput("decide", f"{len(policies)} policies for {len(jobs)} jobs; give one each, or None")

        def timing_out(policy: Decide | None) -> Decision:
            def decided(job: Job, now_ms: int) -> Moves:
                return overdue.time_out(job, stalled=cause == "stall", now_ms=now_ms, rng=self._rng, decide=policy)

            return decided

        return await self._write(jobs, [timing_out(policy) for policy in policies])

    async def release(self, jobs: Sequence[Job], *, reason: str, lost: bool = False) -> list[Outcome]:
        """Give claims back (a drain): no failure is counted. `lost` says that their session died through no fault of
        theirs, which is counted in `losses` besides `releases`."""
        check_text(reason, field="reason", limit=1000)

        def decide(job: Job, _: int) -> Moves:
            return attempts.release(job, reason, lost=lost)

        return await self._write(jobs, [decide] * len(jobs))

    async def snooze(self, job: Job, wait: str | timedelta, *, reason: str | None = None) -> Outcome:
        """Put a job off, by its own wish: no failure is counted."""
        wait_s = seconds(wait, field="snooze")
        if not 0 < wait_s < 1e9:
            raise InvalidInput("snooze", f"{wait_s!r} seconds is not a wait")
        if reason is not None:
            check_text(reason, field="reason", limit=1000)

        def decide(row: Job, now_ms: int) -> Moves:
            return attempts.snooze(row, wait_s, reason, now_ms=now_ms)

        return (await self._write([job], [decide]))[0]

    async def park(self, jobs: Sequence[Job], *, wait: str | timedelta, reason: str) -> list[Outcome]:
        """Put jobs off that this worker cannot run (an unknown task): neither a failure nor a start is counted."""
        wait_s = seconds(wait, field="wait")
        if not 0 < wait_s < 1e9:
            raise InvalidInput("wait", f"{wait_s!r} seconds is not a wait")
        check_text(reason, field="reason", limit=1000)

        def decide(row: Job, now_ms: int) -> Moves:
            return attempts.park(row, wait_s, reason, now_ms=now_ms)

        return await self._write(jobs, [decide] * len(jobs))

    async def skip(self, job: Job, *, reason: str) -> Outcome:
        """End a job that found itself not needed."""
        check_text(reason, field="reason", limit=1000)
        return (await self._write([job], [lambda row, _: attempts.skip(row, reason)]))[0]

    async def confirm_cancelled(self, jobs: Sequence[Job], *, reason: str | None = None) -> list[Outcome]:
        """The work has stopped, as asked."""
        if reason is not None:
            check_text(reason, field="reason", limit=1000)
        return await self._write(jobs, [lambda row, _: cancellation.confirm(row, reason)] * len(jobs))

    def _failing(self, item: Failure) -> Decision:
        given: object = item.error
        if isinstance(given, BaseException):
            given = error_info(given)
        if not isinstance(given, ErrorInfo):
            return _refusing(
                InvalidInput("error", f"{shown(given)} is not an error; wrap an exception with error_info()")
            )
        error = bounded(given)

        def decide(job: Job, now_ms: int) -> Moves:
            if item.crashed:
                return attempts.crash(job, error, after_crash(job), now_ms=now_ms, to="failed")
            verdict = after_failure(job, error, rng=self._rng, decide=item.decide, after_s=item.after_s)
            return attempts.fail(job, error, verdict, now_ms=now_ms)

        return decide

    async def _write(
        self, jobs: Sequence[Job], decisions: Sequence[Decision], on_last: Sequence[Move | None] = ()
    ) -> list[Outcome]:
        refused: dict[int, Outcome] = {}
        wishes = []
        for index, (job, decide) in enumerate(zip(jobs, decisions, strict=True)):
            try:
                holder = _holder(job)
            except InvalidInput as error:
                refused[index] = Outcome("invalid", job, error)
                continue
            wishes.append(Wish(job, decide, holder, holder, (), on_last[index] if on_last else None))
        return _merged(await self._writer.write(wishes), refused)


def _refusing(error: MainstayError) -> Decision:
    """What cannot be meant is that job's outcome, and spoils no batch."""

    def decide(*_: object) -> Moves:
        raise error

    return decide


def _succeed(result: bytes | None, started_ms: int | None, actor: str, chain: Chain, job: Job, now_ms: int) -> Moved:
    """The work is done. A success that raced a cancel has won."""
    return succeed(
        job,
        result=result,
        starts=attempts.begun(job),
        started_ms=started_ms,
        now_ms=now_ms,
        actor=actor,
        chain=chain,
    )


def _holder(job: Job) -> str:
    if job.session is None:
        raise InvalidInput("job", f"{job.id} is {job.status} and has no owner; pass the row as it was claimed")
    return job.session


def _merged(outcomes: list[Outcome], refused: dict[int, Outcome]) -> list[Outcome]:
    """Put what was refused at the door back in its place."""
    for index in sorted(refused):
        outcomes.insert(index, refused[index])
    return outcomes
