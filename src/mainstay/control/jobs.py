"""The jobs of a store: submit them, read them, wait for their end.

Everything about a new job is checked before anything is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal

from ..clock import seconds
from ..errors import AlreadySubmitted, Conflict, InvalidInput, JobNotFound, UniqueClash, WaitTimeout
from ..lifecycle import UNIT, Event, Move, table_of
from ..model import Job, Settings, check_id
from ..stores import Change, Durability, InsertResult, JobStore, NewJob, Query, RefusedWrite, Wake, strongest
from .group import SubmittedGroup, group_jobs, in_group, known_group
from .job_factory import JobFactory, JobRequest, in_requests
from .options import Plan
from .trail import read_events, read_story
from .wait_polls import Polls, is_over

log = logging.getLogger("mainstay.control")

#: raises if this job may not be cancelled for another one
MayReplace = Callable[[Job], Awaitable[None]]

_REPLACE_ROUNDS = 8
#: a waiter looks again at least this often
_LONGEST_S = 600.0
_OPEN = tuple(name for name, state in UNIT.states.items() if not state.settled)


class JobService:
    """The jobs of a store for their submitters: submit, read, wait."""

    def __init__(self, store: JobStore, settings: Settings, factory: JobFactory, actor: str) -> None:
        self._store = store
        self._factory = factory
        self._actor = actor
        self._polls = Polls(store, settings.poll_s)

    # submit -------------------------------------------------------------------------------------------

    def plan(self, **options: Any) -> Plan:
        """Check options once, for any number of requests."""
        return self._factory.plan(options)

    async def submit(self, name: str, payload: Any = None, **options: Any) -> InsertResult:
        """Submit one job.

        Options: queue, priority (-100..100), delay or run_at, retries, backoff (exponential, linear, fixed),
        backoff_base, backoff_cap, jitter, crash_budget, timeout, queue_deadline, stall_timeout, on_stall (retry,
        hold), grace, key, key_ttl, unique (a key, or True: by content), on_clash (return, refuse, replace),
        concurrency_key, tags, metadata, keep, kind, after (ids of jobs to wait for), after_when (succeeded, settled),
        after_failed (skip, fail), durability (local, replicated, applied). Durations are written with a unit; timeouts
        can be "off".
        """
        return await self.submit_request(JobRequest(name, payload, options))

    async def submit_request(self, request: JobRequest, *, may_replace: MayReplace | None = None) -> InsertResult:
        """Submit one job whose options may have been read before. `may_replace` is called before `on_clash="replace"`
        cancels a job, and raises to refuse it."""
        store = self._store
        [(new, plan)] = self._factory.make([request], now_ms=store.clock.now_ms(), chain=store.chain)
        if plan.on_clash == "replace" and new.job.unique_key is not None:
            if plan.durability is not None:
                raise InvalidInput(
                    "durability",
                    "on_clash='replace' may cancel a job, and that write has the durability of the store's URL; leave "
                    "it out, or put durability into the URL",
                )
            return await self._replace(new, may_replace)
        return (await self.insert([new], plan.durability))[0]

    def prepare(self, request: JobRequest) -> tuple[NewJob, Durability | None]:
        """A job for `insert`, which may be repeated if no answer came: the same job is answered as the first time."""
        [(new, plan)] = self._factory.make([request], now_ms=self._store.clock.now_ms(), chain=self._store.chain)
        return new, plan.durability

    async def submit_many(self, requests: Iterable[JobRequest]) -> list[InsertResult]:
        """Submit many jobs, all or none."""
        store = self._store
        prepared = self._factory.make(requests, now_ms=store.clock.now_ms(), chain=store.chain)
        for index, (new, plan) in enumerate(prepared):
            if plan.on_clash == "replace" and new.job.unique_key is not None:
                raise InvalidInput(f"requests[{index}].on_clash", "'replace' works for one job at a time; use submit")
        if not prepared:
            return []
        return await self.insert([new for new, _ in prepared], strongest(plan.durability for _, plan in prepared))

    async def submit_group(
        self,
        members: Iterable[JobRequest],
        then: JobRequest,
        *,
        when: Literal["succeeded", "settled"] = "succeeded",
        failed: Literal["skip", "fail"] = "skip",
    ) -> SubmittedGroup:
        """Submit many jobs and a callback (`then`) that runs once when all have succeeded, or are settled; all or none.

        A member whose key was used before counts as the earlier job. If `then` itself was submitted before, nothing is
        stored. A group without members is done at once. If a member does not succeed, `then` is skipped, or fails if
        `failed` is "fail".
        """
        jobs, durability = group_jobs(
            members, then, when=when, failed=failed, plan=self._factory.plan, new_jobs=self.new_jobs
        )
        try:
            stored = await self.insert(jobs, durability)
        except AlreadySubmitted as known:
            awaited = await self._store.awaited(known.job_id)
            store = self._store
            survives = store.durability if durability is None else store.durability_of(durability)
            return known_group(known.job_id, jobs, awaited, survives)
        except (Conflict, InvalidInput) as error:
            raise in_group(error, len(jobs) - 1) from error.__cause__
        return SubmittedGroup(stored[-1], stored[:-1])

    def new_jobs(self, requests: Iterable[JobRequest], *, actor: str | None = None) -> tuple[NewJob, ...]:
        """Jobs for another write to insert: a completion, the tick of a schedule."""
        now_ms, chain = self._store.clock.now_ms(), self._store.chain
        return self._factory.together(requests, now_ms=now_ms, chain=chain, actor=actor)

    async def insert(self, jobs: Sequence[NewJob], durability: Durability | None) -> list[InsertResult]:
        """Insert all or none. A refusal names a job by its place among the requests."""
        store = self._store
        try:
            if durability is None:
                text, results = store.durability, await store.insert(jobs)
            else:
                text = store.durability_of(durability)
                results = await store.insert(jobs, durability=durability)
        except (Conflict, InvalidInput) as error:
            raise in_requests(error, len(jobs)) from error.__cause__
        for result in results:
            result.durability = text
        return results

    async def _replace(self, new: NewJob, may_replace: MayReplace | None) -> InsertResult:
        """Insert, or cancel the waiting holder of the unique key and insert in the same transaction."""
        for _ in range(_REPLACE_ROUNDS):
            [submitted] = await self.insert([new], None)
            # an idempotency key returns the earlier job, even if that was deleted since
            if submitted.created or submitted.by == "key":
                return submitted
            holder = (await self._store.get([submitted.id]))[0]
            if holder is None:
                continue
            change = self._replacement(holder, new)
            if change is None:
                continue
            if may_replace is not None:
                await may_replace(holder)
            if (await self._store.apply([change]))[0].outcome != "applied":
                continue
            # the key of a spawned job may have returned another one, and the answer does not say so: read it
            if (await self._store.get([new.job.id]))[0] is not None:
                log.info("replaced job_id=%s by=%s", holder.id, new.job.id)
                return InsertResult(new.job.id, True, durability=self._store.durability)
        raise Conflict(
            f"unique key {new.job.unique_key!r}: other submits kept taking it; nothing was submitted, try again"
        )

    def _replacement(self, holder: Job, new: NewJob) -> Change | None:
        """The change that replaces the holder by `new`; None if the holder has just settled."""
        state = table_of(holder.parent).get(holder.status)
        if state is not None and state.settled:
            return None
        if state is None or state.holds:
            raise UniqueClash(
                f"job {holder.id} holds the unique key {new.job.unique_key!r} and is {holder.status}; only a waiting "
                "job can be replaced: wait for it, or cancel it first"
            )
        move = Move(to="cancelled", reason=f"replaced by {new.job.id}", details={"replaced_by": new.job.id})
        now_ms = self._store.clock.now_ms()
        return Change(before=holder, moves=(move,), actor=self._actor, at_ms=now_ms, spawn=(new,))

    # read ---------------------------------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """One job; raises `JobNotFound`."""
        return (await self.get_many([job_id]))[0]

    async def get_many(self, ids: Sequence[str]) -> list[Job]:
        """Several jobs, in this order; raises `JobNotFound` for the first that does not exist."""
        jobs = []
        for job_id, job in zip(ids, await self._store.get([check_id(job_id) for job_id in ids]), strict=True):
            if job is None:
                raise JobNotFound(job_id)
            jobs.append(job)
        return jobs

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The audit trail of a job, in order. A deleted job still has its tombstone."""
        return await read_events(self._store, job_id, after=after, limit=limit)

    async def story(self, job_id: str) -> list[str]:
        """The audit trail in words."""
        return await read_story(self._store, job_id)

    async def awaited(self, job_id: str) -> list[str]:
        """The ids of the jobs that a job waits for, or waited for, in the order they were given; raises
        `JobNotFound`."""
        ids = await self._store.awaited(check_id(job_id))
        if not ids:
            await self.get(job_id)
        return ids

    async def refusals(self, job_id: str) -> list[RefusedWrite]:
        """The writes of lost claims that were refused, one per claim; a job without any may be deleted."""
        return await self._store.refusals(check_id(job_id))

    async def unit_counts(self, job_id: str) -> dict[str, int]:
        """How many units of a job are in each status; empty for a job without units, and for a missing one."""
        return await self._store.unit_counts(check_id(job_id))

    async def has_open_units(self, job_id: str) -> bool:
        """Whether a job has units that are not settled. The holder of a parent calls this on a timer: a sweep or an
        operator may end or delete the last unit, and no worker reports that."""
        query = Query(parent=check_id(job_id), status=_OPEN)
        return bool((await self._store.find(query, limit=1)).jobs)

    async def wait(self, job_id: str, timeout: str | timedelta | None = None) -> Job:  # noqa: ASYNC109 - how users say it
        """The job once it is settled; raises `WaitTimeout`. Subscribe, then read, then wait: no end is missed."""
        timeout_s = None if timeout is None else seconds(timeout, field="timeout")
        loop = asyncio.get_running_loop()
        ends = None if timeout_s is None else loop.time() + timeout_s
        async with self._store.wake([f"job:{check_id(job_id)}"]) as wake:
            with self._polls.watched(job_id) as polled:
                while True:
                    job = await self.get(job_id)
                    if is_over(job):
                        return job
                    left_s = _LONGEST_S if ends is None else min(_LONGEST_S, ends - loop.time())
                    if left_s <= 0:
                        raise WaitTimeout(f"job {job_id} is still {job.status} after {timeout_s:g}s; it continues")
                    await _first_of(wake, polled, left_s)
                    if polled.done():
                        return polled.result()


async def _first_of(wake: Wake, polled: asyncio.Future[Job], timeout_s: float) -> None:
    """Wait for the wake or for the result of a poll."""
    waking = asyncio.ensure_future(wake.wait(timeout_s))
    try:
        either: set[asyncio.Future[Any]] = {waking, polled}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not waking.done():
            waking.cancel()
            await asyncio.wait({waking})
    if not waking.cancelled():
        waking.result()
