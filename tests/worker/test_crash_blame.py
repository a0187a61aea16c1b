"""What becomes of the jobs of a dead engine, by what the recorder said of them."""

from __future__ import annotations

import random

import pytest

from mainstay.control import Control
from mainstay.control.rules.blame import ALONE_LOSSES
from mainstay.model import Job
from mainstay.testing import MemoryStore, VirtualClock
from mainstay.worker.crash_blame import Buried, Death, bury
from mainstay.worker.recorder import Running


class Grave:
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

    async def bury(self, running: tuple[Running, ...], status: int = -9, **how: object) -> Buried:
        death = Death(session=self.session, status=status, running=running, **how)  # type: ignore[arg-type]
        return await bury(self.control, death)

    async def now(self, job: Job) -> Job:
        return await self.control.jobs.get(job.id)


@pytest.fixture
def grave() -> Grave:
    return Grave()


async def test_what_ran_crashed_and_what_had_not_begun_is_given_back(grave: Grave) -> None:
    ran, waited = await grave.hold(2)

    buried = await grave.bury(grave.ran(ran))

    assert (buried.crashed, buried.released, buried.left) == (1, 1, 0)
    one, other = await grave.now(ran), await grave.now(waited)
    assert (one.status, one.crashes, one.starts, one.releases) == ("pending", 1, 1, 0)
    assert (other.status, other.crashes, other.starts, other.releases) == ("pending", 0, 0, 1)
    assert (one.losses, other.losses) == (0, 1)
    assert await grave.control.store.sessions() == []


async def test_a_spent_crash_budget_ends_in_quarantine(grave: Grave) -> None:
    (ran,) = await grave.hold(1, crash_budget=1)

    await grave.bury(grave.ran(ran), status=3)

    job = await grave.now(ran)
    assert job.status == "quarantined"
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("worker_crashed", "its engine exited with code 3 while it ran this")


async def test_when_one_overran_the_others_are_innocent(grave: Grave) -> None:
    guilty, ran, waited = await grave.hold(3, retries=0)
    running = grave.ran(guilty, ran)

    buried = await grave.bury(running, blamed=running[:1])

    assert (buried.timed_out, buried.released, buried.crashed) == (1, 2, 0)
    job = await grave.now(guilty)
    assert (job.status, job.failures, job.crashes) == ("quarantined", 1, 0)
    for other in (ran, waited):
        row = await grave.now(other)
        assert (row.status, row.failures, row.crashes, row.releases) == ("pending", 0, 0, 1)


async def test_one_that_made_no_progress_is_told_as_stalled(grave: Grave) -> None:
    (guilty,) = await grave.hold(1, retries=0, stall_timeout="1s")
    await grave.control.claims.start([guilty])
    running = grave.ran(guilty)

    await grave.bury(running, blamed=running)

    job = await grave.now(guilty)
    assert job.error is not None
    assert job.error.code == "stalled"


async def test_what_had_not_begun_when_an_engine_was_killed_for_anothers_sake_is_no_loss(grave: Grave) -> None:
    blamed, waited = await grave.hold(2)
    running = grave.ran(blamed)

    await grave.bury(running, blamed=running)

    other = await grave.now(waited)
    assert (other.status, other.releases, other.losses) == ("pending", 1, 0)


async def test_what_a_stopped_worker_ran_is_given_back_with_the_reason(grave: Grave) -> None:
    (ran,) = await grave.hold(1)

    buried = await grave.bury(grave.ran(ran), wish="its worker was stopped")

    job = await grave.now(ran)
    assert (buried.released, job.status, job.crashes) == (1, "pending", 0)
    assert "its worker was stopped" in " ".join(await grave.control.jobs.story(ran.id))


async def test_what_ran_in_a_process_of_its_own_is_lost_and_not_blamed(grave: Grave) -> None:
    ran, apart = await grave.hold(2)

    await grave.bury((*grave.ran(ran), *grave.ran(apart, apart=True)))

    job = await grave.now(apart)
    assert (job.status, job.crashes, job.releases, job.losses) == ("pending", 0, 1, 1)
    assert "is not blamed" in " ".join(await grave.control.jobs.story(apart.id))
    suspect = await grave.now(ran)
    assert suspect.error is not None
    assert suspect.error.message.startswith("its engine was killed by SIGKILL (from outside;")
    assert suspect.error.message.endswith(") while it ran this")


async def test_what_ran_in_a_process_of_its_own_with_nothing_beside_it_is_blamed(grave: Grave) -> None:
    """It may kill its engine from there: one that does it each time must not go round forever."""
    for _ in range(ALONE_LOSSES):
        [job] = await (grave.again() if grave.jobs else grave.hold(1))
        await grave.bury(grave.ran(job, apart=True))
    [job] = await grave.again()

    await grave.bury(grave.ran(job, apart=True))

    row = await grave.now(job)
    assert (row.status, row.crashes, row.losses) == ("pending", 1, ALONE_LOSSES)


async def test_a_slot_of_an_older_claim_blames_nobody(grave: Grave) -> None:
    (held,) = await grave.hold(1)
    older = (Running(held.id, held.token - 1, 0, 0),)

    await grave.bury(older)

    job = await grave.now(held)
    assert (job.status, job.crashes, job.releases) == ("pending", 0, 1)


async def test_what_was_being_cancelled_is_cancelled(grave: Grave) -> None:
    ran, waited = await grave.hold(2)
    for job in (ran, waited):
        await grave.control.operations.cancel(job.id, actor="ann")

    await grave.bury(grave.ran(ran))

    assert [(await grave.now(job)).status for job in (ran, waited)] == ["cancelled", "cancelled"]


async def test_to_bury_twice_does_nothing_more(grave: Grave) -> None:
    (ran,) = await grave.hold(1)
    await grave.bury(grave.ran(ran))

    again = await grave.bury(grave.ran(ran))

    assert again.total == 0
    assert (await grave.now(ran)).crashes == 1


async def test_what_somebody_else_has_by_now_is_left_to_them(grave: Grave) -> None:
    (ran,) = await grave.hold(1)
    await grave.control.claims.close_session(grave.session)
    await grave.control.sweeper.sweep()
    other = await grave.control.claims.open_session()
    (theirs,) = await grave.control.claims.claim(["default"], other.id, 1)

    await grave.bury(grave.ran(ran))

    job = await grave.now(theirs)
    assert (job.status, job.session, job.token) == ("running", other.id, theirs.token)


async def test_more_than_a_page_is_dealt_with(grave: Grave) -> None:
    jobs = await grave.hold(1_200)

    buried = await grave.bury(grave.ran(*jobs[:3]))

    assert (buried.crashed, buried.released) == (3, 1_197)
    row = await grave.now(jobs[0])
    assert row.error is not None
    assert row.error.message.endswith("while it ran this and 2 other jobs")


async def test_each_job_that_is_blamed_is_logged_with_its_id(grave: Grave, caplog: pytest.LogCaptureFixture) -> None:
    """A warning if it is tried again, an error if it is given up."""
    again, given_up = await grave.hold(1, crash_budget=2), await grave.hold(1, crash_budget=1)

    await grave.bury(grave.ran(*again, *given_up))

    said = {vars(one)["job_id"]: one for one in caplog.records if one.name == "mainstay.job"}
    assert {job_id: one.levelname for job_id, one in said.items()} == {
        again[0].id: "WARNING",
        given_up[0].id: "ERROR",
    }
    assert said[given_up[0].id].getMessage().startswith("quarantined: WorkerCrashed: its engine was killed")
