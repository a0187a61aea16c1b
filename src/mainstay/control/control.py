"""Control: the one object through which jobs are submitted, run, ended and looked after."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from ..clock import seconds
from ..errors import InvalidInput
from ..lifecycle import Event
from ..model import Job, Leadership, Offer, Progress, QueueSettings, Session, Settings
from ..stores import Deletion, JobStore, NewJob, Page, Pulse, Query, Refusal, Report, Stats, Trimmed, usual_settings
from . import retention
from .attempts import Attempts, Completion, Failure
from .draining import drain
from .driving import Driving
from .duties import Duties, Duty
from .group import Grouper, SubmittedGroup
from .holding import Extension, Holder, check_session
from .operate import Operator
from .options import MOST, Plan, check_queue, check_text
from .reading import Reader
from .rules.guard import SweepGuard
from .rules.retry import Decide
from .submit import MayReplace, Request, Submitted, Submitter
from .sweep import Sweeper, Swept
from .writer import Decision, Outcome, Writer

#: how often the leader trims what retention lets go
RETENTION_EVERY_S = 60.0


class Control:
    """The rules, on any store.

    Writes by workers (`complete`, `fail`, `release` ...) take the row as it was claimed and answer per job with an
    `Outcome`. What people do (`cancel`, `retry`, `force` ...) names who and why, and raises when refused; the
    `..._many` forms answer per job instead.

    Without `settings` they come from the environment (`MAINSTAY_LEASE=20s` ...), and where it is silent from the
    defaults.

    >>> import asyncio
    >>> from mainstay.testing import MemoryStore
    >>> async def story():
    ...     control = Control(MemoryStore())
    ...     submitted = await control.submit("mail.send", {"to": "a@b.c"}, queue="mail", retries=5)
    ...     session = await control.open_session()
    ...     jobs = await control.claim(["mail"], session.id, 10)
    ...     await control.complete([Completion(job, result="sent") for job in jobs])
    ...     return (await control.get(submitted.id)).status
    >>> asyncio.run(story())
    'succeeded'
    """

    def __init__(
        self,
        store: JobStore,
        *,
        settings: Settings | None = None,
        rng: random.Random | None = None,
        actor: str = "client",
    ) -> None:
        if not hasattr(store, "insert") or not hasattr(store, "clock"):
            raise InvalidInput(
                "store", f"{store!r} is not an open store; pass what `await open_store('sqlite:///jobs.db')` returns"
            )
        self.store = store
        self.settings = settings = settings or Settings.from_env(os.environ, usual=usual_settings(store.url))
        rng = rng or random.Random()
        writer = Writer(store)
        guard = SweepGuard(lease_ms=round(settings.lease_s * 1000), heartbeat_ms=round(settings.heartbeat_s * 1000))
        self._rng = rng
        self._actor = actor
        self._submitter = Submitter(store, settings, rng, actor)
        self._grouper = Grouper(store, self._submitter)
        self._holder = Holder(store, writer, guard, settings, rng)
        self._attempts = Attempts(writer, self._submitter, settings, rng)
        self._driving = Driving(store, writer, self._submitter)
        self._operator = Operator(store, writer, settings, self._driving)
        self._sweeper = Sweeper(store, writer, guard, rng)
        self._reader = Reader(store, settings.poll_s)

    # submit -------------------------------------------------------------------------------------------

    async def submit(self, name: str, payload: Any = None, **options: Any) -> Submitted:
        """Submit one job.

        Options: queue, priority (-100..100), delay or run_at, retries, backoff (exponential, linear, fixed),
        backoff_base, backoff_cap, jitter, crash_budget, timeout, queue_deadline, stall_timeout, on_stall (retry,
        hold), grace, key, key_ttl, unique (a key, or True: by content), on_clash (return, refuse, replace),
        concurrency_key, tags, metadata, keep, kind, after (ids of jobs to wait for), after_when (succeeded, settled),
        after_failed (skip, fail), durability (local, replicated, applied). Durations are written with a unit; timeouts
        can be "off".
        """
        return await self._submitter.submit(Request(name, payload, options))

    async def submit_request(self, request: Request, *, may_replace: MayReplace | None = None) -> Submitted:
        """Submit one job whose options were read beforehand. `may_replace` is asked before `on_clash="replace"` cancels
        a job, and raises to refuse it."""
        return await self._submitter.submit(request, may_replace=may_replace)

    async def submit_many(self, requests: Iterable[Request]) -> list[Submitted]:
        """Submit many jobs, all or none."""
        return await self._submitter.submit_many(requests)

    async def submit_group(
        self,
        members: Iterable[Request],
        then: Request,
        *,
        when: Literal["succeeded", "settled"] = "succeeded",
        failed: Literal["skip", "fail"] = "skip",
    ) -> SubmittedGroup:
        """Submit many jobs and one (`then`) that runs once when all have succeeded, or are settled; all or none.

        A member that met a job which was there before (by its key) counts as that job. If `then` itself was submitted
        before, nothing is stored. A group without members is done at once. When a member ends otherwise, `then` is
        skipped, or fails if so told.
        """
        return await self._grouper.submit(members, then, when=when, failed=failed)

    def plan(self, **options: Any) -> Plan:
        """Check options once, to be used in any number of requests."""
        return self._submitter.plan(options)

    def new_jobs(self, requests: Iterable[Request], *, actor: str | None = None) -> tuple[NewJob, ...]:
        """Jobs ready to be inserted by another write, like the tick of a schedule."""
        return self._submitter.new_jobs(requests, actor=actor)

    # hold ---------------------------------------------------------------------------------------------

    async def open_session(
        self,
        *,
        worker: str = "",
        host: str | None = None,
        pid: int = 0,
        lease_s: float | None = None,
        supervisor: int = 0,
        offer: Offer | None = None,
    ) -> Session:
        """Open a session (a worker process) under a fresh id, which begins with the worker's name (1 to 64 letters,
        digits, `.`, `_`, `-`). Without a `host` it is this machine's; `pid` set to this process's lets its death be
        noticed at once. `supervisor` is the pid of the worker that it is an engine of, if there is one. With an `offer`
        it is given only jobs of tasks that it names; without, every job of the queues it claims from."""
        return await self._holder.open_session(
            worker=worker, host=host, pid=pid, lease_s=lease_s, supervisor=supervisor, offer=offer
        )

    async def close_session(self, session: str) -> None:
        """Close a session. What it still holds is swept; release it first."""
        await self._holder.close_session(session)

    async def claim(self, queues: Sequence[str], session: str, n: int) -> list[Job]:
        """Take up to n jobs from these queues for a session; raises `SessionLost` when it was given up meanwhile."""
        return await self._holder.claim(queues, session, n)

    async def start(self, jobs: Sequence[Job]) -> list[bool]:
        """Commit that work begins; False where the claim was lost."""
        return await self._holder.start(jobs)

    def started(self, job: Job) -> Report:
        """A start mark to send with the next beat."""
        return self._holder.started(job)

    def progress(
        self,
        job: Job,
        done: float,
        total: float | None = None,
        message: str | None = None,
        *,
        checkpoint: bytes | None = None,
    ) -> Report:
        """A progress report to send with the next beat. Only progress feeds the stall clock."""
        return self._holder.progress(job, Progress(done=done, total=total, message=message), checkpoint)

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        """Send reports now; False where the claim was lost. What cannot be stored (a checkpoint over the limit, say) is
        refused, naming the job, once the others are stored."""
        return await self._holder.report(reports)

    async def beat(self, sessions: Sequence[str], reports: Sequence[Report] = ()) -> list[Pulse]:
        """Keep sessions alive, with whatever they have to report, in one write."""
        return await self._holder.beat(sessions, reports)

    async def extend(self, job: Job, *, progress: Progress | None = None) -> Extension:
        """Ask for more run time: granted if progress rose since the last grant, five times at most."""
        return await self._holder.extend(job, progress=progress)

    # drive --------------------------------------------------------------------------------------------

    async def hand_over(self, job: Job, driver: Request, *, reason: str) -> Job:
        """Leave a claimed job to its units: let go of it where it stands, and make the unit that drives it. The row."""
        return await self._driving.hand_over(job, driver, reason=reason)

    async def spawn(self, job: Job, units: Iterable[Request], *, reason: str) -> Job:
        """Make jobs on behalf of a claimed one, all or none; refused with `StaleClaim` when its claim was lost."""
        return await self._driving.spawn(job, units, reason=reason)

    async def put_off(self, job: Job, wait: str | timedelta, *, reason: str) -> Job:
        """Give a claimed unit back until later, without losing its place in the queue."""
        return await self._driving.put_off(job, seconds(wait, field="wait"), reason=reason)

    async def act(self, job_id: str, decide: Decision, *, actor: str, version: int | None = None) -> Job:
        """Move a job by a rule of its kind. `decide` is pure: it gets the row as it stands and the time in ms. With a
        `version`, only as long as the job is at that one; else `VersionChanged` is raised."""
        return await self._driving.act(job_id, decide, actor=actor, version=version)

    async def nudge(self, job: Job) -> None:
        """Have the driver of a job look at it now."""
        await self._driving.nudge(job)

    async def take_over(self, job: Job, session: str) -> Job:
        """Become the owner of a phase whose owner was lost."""
        return await self._holder.take_over(job, session)

    # end ----------------------------------------------------------------------------------------------

    async def complete(self, done: Sequence[Completion]) -> list[Outcome]:
        """Settle successes."""
        return await self._attempts.complete(done)

    async def fail(self, failures: Sequence[Failure]) -> list[Outcome]:
        """Count failures; retry, stop or quarantine as each policy says."""
        return await self._attempts.fail(failures)

    async def time_out(
        self, jobs: Sequence[Job], *, cause: Literal["run", "stall"], decide: Sequence[Decide | None] | None = None
    ) -> list[Outcome]:
        """End runs that their worker stopped at a limit. `decide` has a retry policy for each job, or None for the
        job's own; a stall that is to be held is held whatever a policy would say."""
        return await self._attempts.time_out(jobs, cause=cause, decide=decide)

    async def release(self, jobs: Sequence[Job], *, reason: str, lost: bool = False) -> list[Outcome]:
        """Give claims back (a drain); no failure is counted. `lost` says that their session died through no fault of
        theirs, which is counted in `losses` besides `releases`."""
        return await self._attempts.release(jobs, reason=reason, lost=lost)

    async def snooze(self, job: Job, wait: str | timedelta, *, reason: str | None = None) -> Outcome:
        """Put a job off by its own wish; no failure is counted."""
        return await self._attempts.snooze(job, seconds(wait, field="snooze"), reason=reason)

    async def park(self, jobs: Sequence[Job], *, wait: str | timedelta, reason: str) -> list[Outcome]:
        """Put jobs off that this worker cannot run (an unknown task); neither a failure nor a start is counted."""
        return await self._attempts.park(jobs, seconds(wait, field="wait"), reason=reason)

    async def skip(self, job: Job, *, reason: str) -> Outcome:
        """End a job that is not needed, by its own word."""
        return await self._attempts.skip(job, reason=reason)

    async def confirm_cancelled(self, jobs: Sequence[Job], *, reason: str | None = None) -> list[Outcome]:
        """Confirm that cancelled work has stopped."""
        return await self._attempts.confirm_cancelled(jobs, reason=reason)

    async def sweep(self) -> Swept:
        """Reap dead sessions and end what overran."""
        return await self._sweeper.sweep()

    # operate ------------------------------------------------------------------------------------------

    async def cancel(
        self, job_id: str, *, actor: str, reason: str = "cancelled on request", version: int | None = None
    ) -> Job:
        """Cancel: at once if nobody works on it, else through `cancelling` with its grace. Twice is once. With a
        `version`, here and below, only as long as the job is at that one; else `VersionChanged` is raised."""
        return await self._operator.cancel(job_id, actor=actor, reason=reason, version=version)

    async def cancel_many(
        self, ids: Sequence[str], *, actor: str, reason: str = "cancelled on request"
    ) -> list[Outcome]:
        """Cancel many; each is answered for."""
        return await self._operator.cancel_many(ids, actor=actor, reason=reason)

    async def withdraw_many(
        self, ids: Sequence[str], *, actor: str, reason: str = "withdrawn on request"
    ) -> list[Outcome]:
        """Cancel those that wait; what was taken meanwhile is refused and goes on. Each is answered for."""
        return await self._operator.withdraw_many(ids, actor=actor, reason=reason)

    async def retry(
        self, job_id: str, *, actor: str, reason: str = "retried on request", version: int | None = None
    ) -> Job:
        """Send a job that settled short of success, or waits for its retry, back to the queue now."""
        return await self._operator.retry(job_id, actor=actor, reason=reason, version=version)

    async def retry_many(self, ids: Sequence[str], *, actor: str, reason: str = "retried on request") -> list[Outcome]:
        """Retry many; each is answered for."""
        return await self._operator.retry_many(ids, actor=actor, reason=reason)

    async def force(self, job_id: str, to: str, *, actor: str, reason: str, version: int | None = None) -> Job:
        """Move a job against the table, audited as forced."""
        return await self._operator.force(job_id, to, actor=actor, reason=reason, version=version)

    async def set_priority(self, job_id: str, priority: int, *, actor: str, version: int | None = None) -> Job:
        """Change a job's place in its queue."""
        return await self._operator.set_priority(job_id, priority, actor=actor, version=version)

    async def delete(self, job_id: str, *, actor: str, reason: str, version: int | None = None) -> None:
        """Delete a job nobody works on."""
        await self._operator.delete(job_id, actor=actor, reason=reason, version=version)

    async def delete_many(self, ids: Sequence[str], *, actor: str, reason: str) -> list[Deletion]:
        """Delete many; each is answered for."""
        return await self._operator.delete_many(ids, actor=actor, reason=reason)

    async def drain(self, worker: str, *, actor: str) -> list[Session]:
        """Ask a worker, by its name or by the id of one of its sessions, to end in good order as a signal would: it
        takes no more jobs, has its grace to finish what it runs, and exits. It hears of it with its next heartbeat.
        All its processes are asked, and answered with; the first who asked stays on record. Raises
        `WorkerNotFound`."""
        return await drain(self.store, worker, by=actor)

    async def pause(self, queue: str, *, reason: str | None = None, actor: str | None = None) -> None:
        """Hand out no more jobs of a queue; what runs goes on. Who did it, when and why is kept until the next time;
        without an `actor`, in the name of whoever this control is for."""
        if reason is not None:
            check_text(reason, field="reason", limit=1000)
        await self._set_queue(queue, actor, paused=True, reason=reason)

    async def resume(self, queue: str, *, actor: str | None = None) -> None:
        """Hand out jobs of a queue again."""
        await self._set_queue(queue, actor, paused=False, reason=None)

    async def _set_queue(self, queue: str, actor: str | None, *, paused: bool, reason: str | None) -> None:
        who = check_text(actor if actor is not None else self._actor, field="actor")
        await self.store.set_queue(
            QueueSettings(
                name=check_queue(queue), paused=paused, reason=reason, set_by=who, set_ms=self.store.clock.now_ms()
            )
        )

    async def set_limit(self, concurrency_key: str, most: int | None) -> None:
        """At most so many jobs of a concurrency key at a time; None lifts the limit."""
        check_text(concurrency_key, field="concurrency_key")
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST):
            raise InvalidInput("limit", f"{most!r} is not a whole number from 1 to {MOST}; pause the queue to stop it")
        await self.store.set_limit(concurrency_key, most)

    # look ---------------------------------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """One job; raises `JobNotFound`."""
        return await self._reader.get(job_id)

    async def get_many(self, ids: Sequence[str]) -> list[Job]:
        """Several jobs, in this order; raises `JobNotFound` for the first that is not there."""
        return await self._reader.get_many(ids)

    async def awaited(self, job_id: str) -> list[str]:
        """The ids of the jobs that a job waits for, or waited for, in the order they were given."""
        return await self._reader.awaited(job_id)

    async def refusals(self, job_id: str) -> list[Refusal]:
        """The writes of lost claims that were refused, one per claim."""
        return await self._reader.refusals(job_id)

    async def unit_counts(self, job_id: str) -> dict[str, int]:
        """How many units of a job stand in each status; none for a job that has none or is not there."""
        return await self._reader.unit_counts(job_id)

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        """Jobs by filter, a page at a time."""
        return await self.store.find(query, cursor=cursor, limit=limit)

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The audit trail of a job."""
        return await self._reader.events(job_id, after=after, limit=limit)

    async def story(self, job_id: str) -> list[str]:
        """The audit trail in words."""
        return await self._reader.story(job_id)

    async def wait(self, job_id: str, timeout: str | timedelta | None = None) -> Job:  # noqa: ASYNC109 - how users say it
        """The job once it is settled; raises `WaitTimeout`."""
        return await self._reader.wait(job_id, None if timeout is None else seconds(timeout, field="timeout"))

    async def has_open_units(self, job_id: str) -> bool:
        """Whether a job still has units that are not settled. Whoever holds a parent asks this on its own timer: a
        unit may be the last one by a sweep, by an operator, or by being deleted, and nobody is left to say so."""
        return await self._reader.has_open_units(job_id)

    async def stats(self) -> Stats:
        """Counts, rates and ages at a glance."""
        return await self.store.stats()

    # look after ---------------------------------------------------------------------------------------

    async def retain(
        self,
        *,
        keep_count: Mapping[str, int] | None = None,
        lead: Leadership | None = None,
        batch: int = 1000,
    ) -> Trimmed:
        """Let go what retention no longer keeps: by age as the settings say, and by count if given."""
        return await retention.retain(self.store, self.settings, keep_count=keep_count, lead=lead, batch=batch)

    def duties(
        self,
        session: str,
        *,
        check: Callable[[Leadership], Awaitable[object]] | None = None,
        extra: Sequence[Duty] = (),
        retention_every_s: float = RETENTION_EVERY_S,
    ) -> Duties:
        """The leader's service for a session (its id): retention and the invariant check on their timers."""
        check_session(session)

        async def trim(lead: Leadership) -> object:
            return await self.retain(lead=lead)

        duties = [Duty("retention", retention_every_s, trim), *extra]
        if check is not None:
            duties.append(Duty("check", self.settings.check_s, check, first_s=self.settings.check_s / 4))
        return Duties(self.store, session, duties, lease_s=self.settings.lease_s, rng=self._rng)
