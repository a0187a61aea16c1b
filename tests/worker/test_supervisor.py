"""A supervisor and real engine processes: what happens to the jobs when one of them dies, hangs, or is told to go."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Any

import apsw
import pytest

from mainstay.worker.spawn import EngineHandle, spawn
from mainstay.worker.supervisor import FORCED, STOPPED, UNFIT
from tests.stopping import stop_between_writes
from tests.worker.crews import Crew, alive, crew_on, kill


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


async def claimed_again(crew: Crew, *ids: str) -> None:
    async def again() -> bool:
        return all(job.token == 2 for job in await crew.jobs(ids))

    await crew.until(again)


# an engine that dies ----------------------------------------------------------------------------------


async def test_a_killed_engine_costs_a_crash_to_what_ran_and_nothing_to_what_had_not_begun(path: Path) -> None:
    async with crew_on(path) as crew:
        (ran,) = await crew.submit("run")
        (waited,) = await crew.submit("wait")
        await crew.until_started([ran])
        await crew.until_held([waited])
        pid = await crew.engine()

        kill(pid)
        await claimed_again(crew, ran, waited)

        one, other = await crew.jobs([ran, waited])
        assert (one.crashes, one.failures, one.releases) == (1, 0, 0)
        assert (other.crashes, other.failures, other.releases) == (0, 0, 1)
        assert one.error is not None
        assert one.error.code == "worker_crashed"
        assert one.error.message.startswith("its engine was killed by SIGKILL (from outside;")
        assert "before the work began" in " ".join(await crew.control.jobs.story(waited))
        assert await crew.engine() != pid


async def test_an_engine_that_exits_is_told_by_its_code_and_the_other_jobs_it_ran(path: Path) -> None:
    async with crew_on(path) as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])

        (died,) = await crew.submit("die", crash_budget=1)

        job = await crew.control.jobs.wait(died)
        assert job.status == "quarantined"
        assert job.error is not None
        assert job.error.message == "its engine exited with code 3 while it ran this and 1 other job"


async def test_the_dead_leave_no_session_and_no_lock_behind(path: Path) -> None:
    async with crew_on(path) as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])
        kill(await crew.engine())
        await claimed_again(crew, ran)
        assert await crew.stop() == STOPPED

        assert await crew.control.store.sessions() == []
        assert list((path.parent / "jobs.db-mainstay" / "sessions").iterdir()) == []


async def test_an_engine_that_dies_again_and_again_is_started_ever_more_slowly(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainstay.worker")
    loop = asyncio.get_running_loop()
    async with crew_on(path) as crew:
        began = loop.time()
        (died,) = await crew.submit("die", crash_budget=3)

        await crew.control.jobs.wait(died)

        # after the first two deaths it waited 0.1 and 0.2 s
        assert loop.time() - began > 0.3
        deaths = [record for record in caplog.records if "engine died" in record.getMessage()]
        assert len(deaths) == 3


# an engine that hangs ---------------------------------------------------------------------------------


async def test_an_engine_that_does_not_end_what_overran_is_killed_for_that_job_alone(path: Path) -> None:
    async with crew_on(path) as crew:
        (innocent,) = await crew.submit("run")
        await crew.until_started([innocent])
        pid = await crew.engine()

        (late,) = await crew.submit("late", timeout="1h", retries=0)

        job = await crew.control.jobs.wait(late)
        assert job.status == "quarantined"
        assert job.error is not None
        assert (job.error.code, job.failures, job.crashes) == ("run_timeout", 1, 0)
        await claimed_again(crew, innocent)
        (other,) = await crew.jobs([innocent])
        assert (other.failures, other.crashes, other.releases) == (0, 0, 1)
        assert "because another job overran" in " ".join(await crew.control.jobs.story(innocent))
        assert not alive(pid)


async def test_what_ran_out_of_patience_is_told_as_stalled(path: Path) -> None:
    async with crew_on(path) as crew:
        (late,) = await crew.submit("late", timeout="1h", stall_timeout="1s", grace="10m", retries=0)

        job = await crew.control.jobs.wait(late)

        assert job.error is not None
        assert job.error.code == "stalled"


async def test_a_stopped_engine_without_an_overdue_job_is_left_alone_within_the_lease_and_beyond(path: Path) -> None:
    async with crew_on(path) as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])
        pid = await crew.engine()

        await stop_between_writes(pid, crew.control.store)
        (session,) = await crew.control.store.sessions()

        async def outlived_its_lease() -> bool:
            (now,) = await crew.control.store.sessions()
            return now.beat_ms - session.beat_ms > session.lease_s * 1000

        await crew.until(outlived_its_lease)
        kill(pid, signal.SIGCONT)
        (job,) = await crew.jobs([ran])
        assert (job.status, job.token, job.session) == ("running", 1, session.id)


# stopping ---------------------------------------------------------------------------------------------


async def test_a_drain_gives_back_what_is_held_and_ends_with_zero(path: Path) -> None:
    async with crew_on(path, processes=2) as crew:
        ids = await crew.submit("run", 3)
        await crew.until_held(ids)

        assert await crew.stop() == STOPPED

        for job in await crew.jobs(ids):
            assert (job.status, job.releases, job.crashes, job.failures) == ("pending", 1, 0, 0)
        assert await crew.control.store.sessions() == []


async def test_a_second_request_to_stop_does_not_wait_for_the_grace(path: Path) -> None:
    async with crew_on(path, queues=("slow",), grace_s=3600.0) as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])
        crew.supervisor.stop()
        await asyncio.sleep(0)
        assert not crew.running.done()

        assert await crew.stop() == STOPPED

        (job,) = await crew.jobs([ran])
        assert (job.status, job.releases) == ("pending", 1)


async def test_a_third_kills_and_gives_back_what_ran(path: Path) -> None:
    async with crew_on(path, queues=("deaf",), grace_s=3600.0) as crew:
        (ran,) = await crew.submit("run")
        (waited,) = await crew.submit("wait")
        await crew.until_started([ran])
        await crew.until_held([waited])
        pid = await crew.engine()
        crew.supervisor.stop()
        crew.supervisor.stop()

        assert await crew.stop() == FORCED

        for job in await crew.jobs([ran, waited]):
            assert (job.status, job.releases, job.crashes) == ("pending", 1, 0)
        assert "its worker was stopped" in " ".join(await crew.control.jobs.story(ran))
        assert not alive(pid)


async def test_a_worker_one_of_whose_engines_is_asked_to_drain_ends_whole_and_says_who_asked(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="mainstay.worker")
    async with crew_on(path, processes=2) as crew:
        ids = await crew.submit("run", 3)
        await crew.until_held(ids)

        async def both_are_up() -> bool:
            return caplog.text.count("engine up") == 2

        await crew.until(both_are_up)
        pids = crew.supervisor.pids
        session = (await crew.jobs(ids))[0].session or ""

        asked = await crew.control.operations.drain(session, actor="ann")

        assert len(asked) == 2, "both engines"
        assert await crew.running == STOPPED
        for job in await crew.jobs(ids):
            assert (job.status, job.releases, job.crashes, job.failures) == ("pending", 1, 0, 0)
        assert await crew.control.store.sessions() == []
        assert not any(alive(pid) for pid in pids)
        assert caplog.text.count("asked to drain by=ann grace=1s engines=2") == 1


async def test_a_worker_is_drained_although_the_engine_that_was_asked_dies_before_its_next_beat(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="mainstay.worker")
    monkeypatch.setenv("FAKE_HEARTBEAT", "1h")
    monkeypatch.setenv("FAKE_LEASE", "2h")
    async with crew_on(path) as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])
        pid = await crew.engine()
        (job,) = await crew.jobs([ran])
        await crew.control.operations.drain(job.session or "", actor="ann")

        kill(pid)

        assert await crew.running == STOPPED
        (job,) = await crew.jobs([ran])
        assert (job.status, job.crashes) == ("pending", 1)
        assert await crew.control.store.sessions() == []
        assert "asked to drain by=ann" in caplog.text


async def test_a_signal_after_a_drain_drains_and_the_next_one_hurries(path: Path) -> None:
    async with crew_on(path, queues=("slow",), grace_s=3600.0) as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])
        crew.supervisor.drain("ann")
        crew.supervisor.stop()
        crew.supervisor.drain("ann")  # as every heartbeat says
        await asyncio.sleep(0)
        assert (await crew.jobs([ran]))[0].status == "running"
        assert not crew.running.done()

        assert await crew.stop() == STOPPED

        (job,) = await crew.jobs([ran])
        assert (job.status, job.releases) == ("pending", 1)


# starting ---------------------------------------------------------------------------------------------


async def test_a_program_that_cannot_be_run_ends_the_worker_with_its_reason(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with crew_on(path, queues=("unfit",), processes=2) as crew:
        assert await crew.running == UNFIT

    assert "cannot start: it does not feel well" in caplog.text


async def test_an_engine_that_ends_before_it_says_anything_ends_the_worker(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with crew_on(path, queues=("silent",)) as crew:
        assert await crew.running == UNFIT

    assert "the engine exited with code 7 before it was ready" in caplog.text


async def test_an_engine_that_retires_is_replaced_at_once_and_may_finish(path: Path) -> None:
    async with crew_on(path, grace_s=60.0) as crew:
        pid = await crew.engine()
        await crew.submit("retire")

        async def two() -> bool:
            return len(await crew.control.store.sessions()) == 2

        await crew.until(two)
        assert pid in crew.supervisor.pids
        assert alive(pid)


async def test_engines_are_replaced_one_by_one_each_when_the_next_is_up(path: Path) -> None:
    async with crew_on(path, processes=2) as crew:

        async def up() -> bool:
            return len(await crew.control.store.sessions()) == 2

        await crew.until(up)
        before = set(crew.supervisor.pids)
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])

        crew.supervisor.roll()

        async def rolled() -> bool:
            now = set(crew.supervisor.pids)
            assert len(now) >= 2, "there was a gap"
            return len(now) == 2 and not now & before

        await crew.until(rolled)
        await crew.until_held([ran])
        (job,) = await crew.jobs([ran])
        # one of the old engines may have had it in between
        assert (job.releases, job.crashes) in ((1, 0), (2, 0))


async def test_a_second_restart_is_refused_while_one_is_under_way_and_says_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with crew_on(path) as crew:
        await crew.engine()
        crew.supervisor.roll()
        assert "restart refused" not in caplog.text

        crew.supervisor.roll()

        assert "restart refused: one is under way" in caplog.text
        crew.supervisor.stop()
        crew.supervisor.roll()
        assert "restart refused: the worker stops" in caplog.text


async def test_new_code_that_does_not_start_leaves_the_old_at_work_and_is_tried_until_it_does(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with crew_on(path) as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])
        pid = await crew.engine()
        monkeypatch.setenv("FAKE_UNFIT", "1")

        async def told(text: str) -> None:
            async def so() -> bool:
                return text in caplog.text

            await crew.until(so)

        crew.supervisor.roll()
        await told("restart given up")
        assert crew.supervisor.pids == [pid]
        (job,) = await crew.jobs([ran])
        assert (job.status, job.token) == ("running", 1)

        caplog.clear()
        kill(pid)
        await told("engine cannot start")
        monkeypatch.delenv("FAKE_UNFIT")
        await claimed_again(crew, ran)


async def test_a_machine_that_is_short_of_processes_for_a_moment_does_not_end_the_worker(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = [OSError(11, "Resource temporarily unavailable")] * 2

    def short(*given: Any, **named: Any) -> EngineHandle:
        if left:
            raise left.pop()
        return spawn(*given, **named)

    monkeypatch.setattr("mainstay.worker.spawn.spawn", short)
    async with crew_on(path) as crew:
        await crew.engine()

    assert caplog.text.count("engine cannot be started: [Errno 11]") == 2


# a store that is away ---------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_store_that_is_locked_for_much_longer_than_the_lease_costs_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainstay.worker")
    # long enough for writers that share a busy machine, and much shorter than the silence
    async with crew_on(path, target=f"sqlite:///{path}?busy_timeout=1s") as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])
        (session,) = await crew.control.store.sessions()
        browser = apsw.Connection(str(path))
        browser.set_busy_timeout(10_000)  # the worker may be writing at this moment
        browser.execute("BEGIN IMMEDIATE")

        # the silence itself is what is tested: a lease to miss the beats, one to wait for others, and some more
        await asyncio.sleep(2 * session.lease_s + 2)
        browser.execute("ROLLBACK")
        browser.close()

        async def beaten_for() -> bool:
            (now,) = await crew.control.store.sessions()
            return now.beat_ms - session.beat_ms > session.lease_s * 1000

        await crew.until(beaten_for)
        (more,) = await crew.submit("run")
        await crew.until_started([more])
        (job,) = await crew.jobs([ran])
        assert (job.status, job.token, job.session) == ("running", 1, session.id)
        said = [record.getMessage() for record in caplog.records]
        assert len([text for text in said if text.startswith("store away what=heartbeat")]) == 1
        assert len([text for text in said if text.startswith("works again what=heartbeat")]) == 1


async def test_the_dead_are_reaped_when_the_store_is_back(path: Path) -> None:
    async with crew_on(path, target=f"sqlite:///{path}?busy_timeout=100ms") as crew:
        (ran,) = await crew.submit("run")
        await crew.until_started([ran])
        pid = await crew.engine()
        browser = apsw.Connection(str(path))
        browser.set_busy_timeout(10_000)  # the worker may be writing at this moment
        browser.execute("BEGIN IMMEDIATE")
        kill(pid)
        while alive(pid):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.5)  # long enough for the first tries to fail

        browser.execute("ROLLBACK")
        browser.close()

        await claimed_again(crew, ran)
        (job,) = await crew.jobs([ran])
        # a crash if the reap was first; a sweep knows less, and counts a loss
        assert job.crashes + job.losses == 1
