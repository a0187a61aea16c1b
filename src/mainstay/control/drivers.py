"""Jobs that their units advance: one of the units, the driver, acts for the job.

A worker claims such a job like any other, hands it over to a driver (a unit with a known id) and releases it. From then
on the job is in a held state without a holder, as long as it has an unsettled unit. The driver is claimed, lost and
claimed again like any unit; it creates the other units, and moves the job when they are done.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ..clock import seconds
from ..lifecycle import Move, table_of, time_text
from ..model import PLACE_MS, Job, check_id, driver_id as driver_of_claim
from ..stores import JobStore
from .job_factory import JobRequest
from .jobs import JobService
from .options import check_text
from .writer import Decision, MoveRequest, Moves, Writer, at_version, refused

#: why a job has no claim that waits until placement has cores for it
AWAITS_CORES = "waits for cores"


def driver_id(job: Job) -> str:
    """The id of the unit that drives a job since its last claim; it follows from the job alone.

    >>> from mainstay.testing import a_job
    >>> driver_id(a_job("running"))
    '018bcfe5-6800-78b3-ae6c-662117bff06a'
    """
    return driver_of_claim(job.id, job.token)


class Drivers:
    """The writes around a driver. The holder of a claim makes them; they are refused once the claim is lost."""

    def __init__(self, store: JobStore, writer: Writer, jobs: JobService) -> None:
        self._store = store
        self._writer = writer
        self._jobs = jobs

    async def hand_over(self, job: Job, driver: JobRequest, units: Iterable[JobRequest] = (), *, reason: str) -> Job:
        """Release a job in its current state and create its driver and first units, in one write. Its run timeout
        continues."""

        def decide(row: Job, now_ms: int) -> Moves:
            no_holder = {"session": None, "claimed_ms": None, "started_ms": row.started_ms or now_ms, "extra_ms": 0}
            return (Move(to=row.status, reason=reason, fields=no_holder, flag="note"),)

        return await self._as_holder(job, decide, [driver, *units])

    async def spawn(self, job: Job, units: Iterable[JobRequest], *, reason: str) -> Job:
        """Create jobs, with a note on the job that creates them; none of them if its claim was lost."""
        return await self._as_holder(job, lambda row, _: (Move(to=row.status, reason=reason, flag="note"),), units)

    async def put_off(self, job: Job, wait: str | timedelta, *, reason: str) -> Job:
        """Give a claim back until later. The job keeps its place in the queue: its turn comes before the jobs that it
        created. It is not counted as a release: a worker parks a job for longer, the more releases it has."""
        wait_s = seconds(wait, field="wait")

        def decide(row: Job, now_ms: int) -> Moves:
            due_ms = now_ms + max(1, round(wait_s * 1000))
            later = {"due_ms": due_ms, "rank": row.rank, "extra_ms": 0}
            why = f"{reason}; looks again at {time_text(due_ms)}"
            return (Move(to="pending", reason=why, fields=later),)

        return await self._as_holder(job, decide, ())

    async def await_placement(self, job: Job, reason: str = AWAITS_CORES) -> Job:
        """Give a claim back until the leader of placement has cores for the job. The job keeps its place in the queue
        and its queue deadline. It is not counted as a release."""

        def decide(row: Job, now_ms: int) -> Moves:
            del row, now_ms
            return (Move(to="pending", reason=reason, fields={"due_ms": PLACE_MS, "extra_ms": 0}),)

        return await self._as_holder(job, decide, ())

    async def act(self, job_id: str, decide: Decision, *, actor: str, version: int | None = None) -> Job:
        """Move a job by a rule of its kind. `decide` is pure: it gets the current row and the time in ms, and is called
        again if the job has moved. With a `version`, the job must be at it; else `VersionChanged` is raised."""
        wanted = at_version(version, decide)
        return await self._writer.one(check_id(job_id), wanted, actor=check_text(actor, field="actor"))

    async def nudge(self, job: Job) -> None:
        """Wake the driver of a job, if it waits."""
        state = table_of(job.parent).get(job.status)
        if job.session is not None or job.token == 0 or state is None or not state.holds:
            return

        def decide(row: Job, now_ms: int) -> Moves:
            if row.status != "pending" or row.due_ms <= now_ms:
                return ()
            return (
                Move(
                    to="pending", reason="asked to look now", fields={"due_ms": now_ms, "rank": row.rank}, flag="note"
                ),
            )

        driver = driver_id(job)
        if (await self._store.get([driver]))[0] is not None:
            await self._writer.one(driver, decide, actor="control")

    async def _as_holder(self, job: Job, decide: Decision, units: Iterable[JobRequest]) -> Job:
        holder = job.session or ""
        spawn = self._jobs.new_jobs(units, actor=holder)
        outcome = (await self._writer.write([MoveRequest(job, decide, holder, holder, spawn)]))[0]
        if outcome.error is not None:
            raise outcome.error
        if not outcome.ok or outcome.job is None:
            raise refused(outcome)
        return outcome.job
