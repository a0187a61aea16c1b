"""The supervisor with the engine it is made for: jobs that die, hang and block, each in its own way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from mainstay.control.check import check
from mainstay.worker.supervisor import STOPPED
from tests.stopping import stop_between_writes
from tests.worker.crews import ENGINE, Crew, alive, crew_on, kill

PROGRAM = "tests.worker.crew_program:stage"

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def stage(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREW_STORE", f"sqlite:///{path}?busy_timeout=500ms")
    return path


@contextlib.asynccontextmanager
async def crew(path: Path, **orders: object) -> AsyncIterator[Crew]:
    async with crew_on(path, target=PROGRAM, command=ENGINE, **orders) as made:
        yield made
        # whatever was done to them, the rows and their histories are sound
        assert (await check(made.control.store)).violations == ()


async def back(made: Crew, job_id: str) -> None:
    """It runs again, for the second time."""

    async def again() -> bool:
        (now,) = await made.jobs([job_id])
        return now.status == "running" and now.token == 2

    await made.until(again)


async def test_a_killed_engines_job_is_back_at_work_without_a_sweep_and_without_its_lease(
    stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREW_LEASE", "1h")
    monkeypatch.setenv("CREW_SWEEP", "1h")
    async with crew(stage, concurrency=1, processes=2) as made:
        (ran,) = await made.submit("goes_on", payload={})
        await made.until_started([ran])
        (job,) = await made.jobs([ran])
        sessions = {session.id: session.pid for session in await made.control.store.sessions()}

        kill(sessions[job.session or ""])

        await back(made, ran)
        (job,) = await made.jobs([ran])
        assert (job.crashes, job.failures, job.releases) == (1, 0, 0)


@pytest.mark.parametrize("how", ["blocks_the_loop", "holds_the_interpreter"])
async def test_a_job_that_blocks_its_engine_is_timed_out_and_nobody_else(stage: Path, how: str) -> None:
    async with crew(stage) as made:
        (innocent,) = await made.submit("goes_on", payload={})
        await made.until_started([innocent])
        pid = await made.engine()

        (guilty,) = await made.submit(how, payload={}, timeout="300ms", grace="200ms", retries=0)

        job = await made.control.jobs.wait(guilty)
        assert (job.status, job.failures, job.crashes) == ("quarantined", 1, 0)
        assert job.error is not None
        assert job.error.code == "run_timeout"

        await back(made, innocent)
        (other,) = await made.jobs([innocent])
        assert (other.failures, other.crashes, other.releases) == (0, 0, 1)
        assert not alive(pid)


async def test_a_stopped_engine_is_killed_when_a_deadline_passes(stage: Path) -> None:
    async with crew(stage) as made:
        (guilty,) = await made.submit("goes_on", payload={}, timeout="1s", grace="200ms", retries=0)
        (innocent,) = await made.submit("goes_on", payload={})
        await made.until_started([guilty, innocent])
        pid = await made.engine()

        await stop_between_writes(pid, made.control.store)

        job = await made.control.jobs.wait(guilty)
        assert (job.status, job.failures, job.crashes) == ("quarantined", 1, 0)

        await back(made, innocent)
        (other,) = await made.jobs([innocent])
        assert (other.failures, other.crashes) == (0, 0)
        assert not alive(pid)


async def test_a_slow_job_whose_progress_rises_is_not_stopped(stage: Path) -> None:
    async with crew(stage) as made:
        (slow,) = await made.submit("moves_slowly", payload={"steps": 40}, stall_timeout="500ms", grace="100ms")

        job = await made.control.jobs.wait(slow, "60s")

        assert (job.status, job.token, job.failures) == ("succeeded", 1, 0)


async def test_poison_among_many_ends_in_quarantine_and_no_bystander_does(stage: Path) -> None:
    async with crew(stage, processes=2) as made:
        good = await made.submit("takes", 100, payload={"seconds": 0.001})
        bad = await made.submit("leaves", 2, payload={}, crash_budget=2)
        good += await made.submit("takes", 100, payload={"seconds": 0.001})

        for job_id in bad:
            job = await made.control.jobs.wait(job_id, "90s")
            assert (job.status, job.crashes) == ("quarantined", 2)
        for job_id in good:
            job = await made.control.jobs.wait(job_id, "90s")
            assert (job.status, job.failures) == ("succeeded", 0)


async def test_a_store_that_was_locked_for_longer_than_the_lease_finds_the_engines_at_work(stage: Path) -> None:
    async with crew(stage) as made:
        (ran,) = await made.submit("takes", payload={"seconds": 4.5})
        await made.until_started([ran])
        browser = apsw.Connection(str(stage))
        browser.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(4)  # the lease is 3 s; the silence itself is what is tested
        browser.execute("ROLLBACK")
        browser.close()

        job = await made.control.jobs.wait(ran, "60s")
        assert (job.status, job.token) == ("succeeded", 1)
        (after,) = await made.submit("takes", payload={"seconds": 0})
        assert (await made.control.jobs.wait(after, "60s")).status == "succeeded"


async def test_a_drain_lets_what_runs_finish_and_gives_back_what_does_not(stage: Path) -> None:
    async with crew(stage, concurrency=2, grace_s=1.0) as made:
        (short,) = await made.submit("takes", payload={"seconds": 0.5})
        (endless,) = await made.submit("goes_on", payload={})
        await made.until_started([short, endless])

        assert await made.stop() == STOPPED

        one, other = await made.jobs([short, endless])
        assert one.status == "succeeded"
        assert (other.status, other.releases, other.failures, other.crashes) == ("pending", 1, 0, 0)
