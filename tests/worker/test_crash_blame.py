"""What becomes of the jobs of a dead engine, by what the recorder said of them."""

from __future__ import annotations

import random

import pytest

from mainstay.control import Control
from mainstay.control.rules.blame import ALONE_LOSSES
from mainstay.model import Job
from mainstay.testing import MemoryStore, VirtualClock
from mainstay.worker.crash_blame import EngineDeath, ReapResult, reap
from mainstay.worker.recorder import Running


class DeadEngine:
    """A store with one session that holds jobs and is dead."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.control = Control(MemoryStore(self.clock), rng=random.Random(1))
        self.session = ""
        self.jobs: list[Job] = []

    async def hold(self, n: int, **options: object) -> list[Job]:
        if not self.session:
            self.session = (await self.control.claims.open_session()).id
        for _ in range(n):
            await self.control.jobs.submit("demo", None, **options)
        self.jobs = await self.control.claims.claim(["default"], self.session, n)
        return self.jobs

    async def again(self) -> list[Job]:
        """The next session claims what the dead one held."""
        self.session = (await self.control.claims.open_session()).id
        self.jobs = await self.control.claims.claim(["default"], self.session, len(self.jobs))
        return self.jobs

    def ran(self, *jobs: Job, apart: bool = False) -> tuple[Running, ...]:
        return tuple(Running(job.id, job.token, self.clock.now_ms(), 0, apart) for job in jobs)

    async def reap(self, running: tuple[Running, ...], status: int = -9, **how: object) -> ReapResult:
        death = EngineDeath(session=self.session, status=status, running=running, **how)  # type: ignore[arg-type]
        return await reap(self.control, death)

    async def now(self, job: Job) -> Job:
        return await self.control.jobs.get(job.id)


@pytest.fixture
def dead() -> DeadEngine:
    return DeadEngine()


async def test_what_ran_crashed_and_what_had_not_begun_is_given_back(dead: DeadEngine) -> None:
    ran, waited = await dead.hold(2)

    result = await dead.reap(dead.ran(ran))

    assert (result.crashed, result.released, result.left) == (1, 1, 0)
    one, other = await dead.now(ran), await dead.now(waited)
    assert (one.status, one.crashes, one.starts, one.releases) == ("pending", 1, 1, 0)
    assert (other.status, other.crashes, other.starts, other.releases) == ("pending", 0, 0, 1)
    assert (one.losses, other.losses) == (0, 1)
    assert await dead.control.store.sessions() == []


async def test_a_spent_crash_budget_ends_in_quarantine(dead: DeadEngine) -> None:
    (ran,) = await dead.hold(1, crash_budget=1)

    await dead.reap(dead.ran(ran), status=3)

    job = await dead.now(ran)
    assert job.status == "quarantined"
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("worker_crashed", "its engine exited with code 3 while it ran this")


async def test_when_one_overran_the_others_are_innocent(dead: DeadEngine) -> None:
    guilty, ran, waited = await dead.hold(3, retries=0)
    running = dead.ran(guilty, ran)

    result = await dead.reap(running, blamed=running[:1])

    assert (result.timed_out, result.released, result.crashed) == (1, 2, 0)
    job = await dead.now(guilty)
    assert (job.status, job.failures, job.crashes) == ("quarantined", 1, 0)
    for other in (ran, waited):
        row = await dead.now(other)
        assert (row.status, row.failures, row.crashes, row.releases) == ("pending", 0, 0, 1)


async def test_one_that_made_no_progress_is_told_as_stalled(dead: DeadEngine) -> None:
    (guilty,) = await dead.hold(1, retries=0, stall_timeout="1s")
    await dead.control.claims.start([guilty])
    running = dead.ran(guilty)

    await dead.reap(running, blamed=running)

    job = await dead.now(guilty)
    assert job.error is not None
    assert job.error.code == "stalled"


async def test_what_had_not_begun_when_an_engine_was_killed_for_anothers_sake_is_no_loss(dead: DeadEngine) -> None:
    blamed, waited = await dead.hold(2)
    running = dead.ran(blamed)

    await dead.reap(running, blamed=running)

    other = await dead.now(waited)
    assert (other.status, other.releases, other.losses) == ("pending", 1, 0)


async def test_what_a_stopped_worker_ran_is_given_back_with_the_reason(dead: DeadEngine) -> None:
    (ran,) = await dead.hold(1)

    result = await dead.reap(dead.ran(ran), kill_reason="its worker was stopped")

    job = await dead.now(ran)
    assert (result.released, job.status, job.crashes) == (1, "pending", 0)
    assert "its worker was stopped" in " ".join(await dead.control.jobs.story(ran.id))


async def test_what_ran_in_a_process_of_its_own_is_lost_and_not_blamed(dead: DeadEngine) -> None:
    ran, apart = await dead.hold(2)

    await dead.reap((*dead.ran(ran), *dead.ran(apart, apart=True)))

    job = await dead.now(apart)
    assert (job.status, job.crashes, job.releases, job.losses) == ("pending", 0, 1, 1)
    assert "is not blamed" in " ".join(await dead.control.jobs.story(apart.id))
    suspect = await dead.now(ran)
    assert suspect.error is not None
    assert suspect.error.message.startswith("its engine was killed by SIGKILL (from outside;")
    assert suspect.error.message.endswith(") while it ran this")


async def test_what_ran_in_a_process_of_its_own_with_nothing_beside_it_is_blamed(dead: DeadEngine) -> None:
    """It may kill its engine from there: one that does it each time must not go round forever."""
    for _ in range(ALONE_LOSSES):
        [job] = await (dead.again() if dead.jobs else dead.hold(1))
        await dead.reap(dead.ran(job, apart=True))
    [job] = await dead.again()

    await dead.reap(dead.ran(job, apart=True))

    row = await dead.now(job)
    assert (row.status, row.crashes, row.losses) == ("pending", 1, ALONE_LOSSES)


async def test_a_slot_of_an_older_claim_blames_nobody(dead: DeadEngine) -> None:
    (held,) = await dead.hold(1)
    older = (Running(held.id, held.token - 1, 0, 0),)

    await dead.reap(older)

    job = await dead.now(held)
    assert (job.status, job.crashes, job.releases) == ("pending", 0, 1)


async def test_what_was_being_cancelled_is_cancelled(dead: DeadEngine) -> None:
    ran, waited = await dead.hold(2)
    for job in (ran, waited):
        await dead.control.operations.cancel(job.id, actor="ann")

    await dead.reap(dead.ran(ran))

    assert [(await dead.now(job)).status for job in (ran, waited)] == ["cancelled", "cancelled"]


async def test_to_reap_twice_does_nothing_more(dead: DeadEngine) -> None:
    (ran,) = await dead.hold(1)
    await dead.reap(dead.ran(ran))

    again = await dead.reap(dead.ran(ran))

    assert again.total == 0
    assert (await dead.now(ran)).crashes == 1


async def test_what_somebody_else_has_by_now_is_left_to_them(dead: DeadEngine) -> None:
    (ran,) = await dead.hold(1)
    await dead.control.claims.close_session(dead.session)
    await dead.control.sweeper.sweep()
    other = await dead.control.claims.open_session()
    (theirs,) = await dead.control.claims.claim(["default"], other.id, 1)

    await dead.reap(dead.ran(ran))

    job = await dead.now(theirs)
    assert (job.status, job.session, job.token) == ("running", other.id, theirs.token)


async def test_more_than_a_page_is_dealt_with(dead: DeadEngine) -> None:
    jobs = await dead.hold(1_200)

    result = await dead.reap(dead.ran(*jobs[:3]))

    assert (result.crashed, result.released) == (3, 1_197)
    row = await dead.now(jobs[0])
    assert row.error is not None
    assert row.error.message.endswith("while it ran this and 2 other jobs")


async def test_each_job_that_is_blamed_is_logged_with_its_id(
    dead: DeadEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning if it is tried again, an error if it is given up."""
    again, given_up = await dead.hold(1, crash_budget=2), await dead.hold(1, crash_budget=1)

    await dead.reap(dead.ran(*again, *given_up))

    said = {vars(one)["job_id"]: one for one in caplog.records if one.name == "mainstay.job"}
    assert {job_id: one.levelname for job_id, one in said.items()} == {
        again[0].id: "WARNING",
        given_up[0].id: "ERROR",
    }
    assert said[given_up[0].id].getMessage().startswith("quarantined: WorkerCrashed: its engine was killed")
