"""How soon a killed worker's job runs again, and that a live one's never does. By the default settings on SQLite."""

from __future__ import annotations

import asyncio
import signal

import pytest

from mainstay.control import Control
from mainstay.control.check import check
from tests.chaos.fleet import KNOWN_DEAD_S, Fleet, Worker, gone, kill, on_every_store, on_every_store_with_a_long_lease
from tests.stopping import stop_between_writes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def _started(fleet: Fleet, name: str, **arguments: object) -> str:
    job_id = (await fleet.control.jobs.submit(f"chaos_tasks.{name}", arguments)).id
    await fleet.traced(job_id)
    return job_id


async def test_the_job_of_a_dead_child_fails_and_runs_again_at_once(fleet: Fleet) -> None:
    worker = fleet.worker()
    job_id = (await fleet.control.jobs.submit("chaos_tasks.child_waits", {"gate_name": "go"})).id
    first = await fleet.traced(job_id)
    assert first.pid in worker.children

    kill(first.pid, signal.SIGKILL)
    again = await fleet.traced(job_id, times=2)
    fleet.open_gate("go")
    job = await fleet.settled(job_id)

    assert again.at - first.at < 60  # a fresh process has to start and load the program
    assert (job.status, job.crashes, job.failures) == ("succeeded", 1, 0)
    assert await fleet.path(job_id) == ["pending", "running", "failed", "pending", "running", "succeeded"]


@on_every_store_with_a_long_lease
async def test_the_job_of_a_killed_engine_runs_again_by_its_own_worker_within_seconds(fleet: Fleet) -> None:
    worker = fleet.worker()
    job_id = await _started(fleet, "waits", gate_name="go")
    [engine] = worker.engines

    kill(engine, signal.SIGKILL)
    freed = await _freed_after(fleet, job_id)
    fleet.open_gate("go")
    job = await fleet.settled(job_id)

    assert freed < KNOWN_DEAD_S
    assert (job.status, job.crashes) == ("succeeded", 1)
    assert worker.engines != [engine]


@on_every_store_with_a_long_lease
async def test_the_jobs_of_a_killed_worker_are_run_by_another_within_seconds_the_leader_included(fleet: Fleet) -> None:
    leader = fleet.worker()
    await fleet.ready()
    job_id = await _started(fleet, "waits", gate_name="go")
    other = fleet.worker()
    await fleet.ready(2)
    engines = leader.engines

    kill(leader.pid, signal.SIGKILL)
    leader.process.wait()
    freed = await _freed_after(fleet, job_id)
    second = await fleet.traced(job_id, times=2)
    able = other.everyone  # now, while it runs: its process may be one that goes with it
    fleet.open_gate("go")
    job = await fleet.settled(job_id)

    assert freed < KNOWN_DEAD_S
    assert all(gone(engine) for engine in engines), "engines die with their supervisor"
    assert second.pid in able
    assert job.status == "succeeded"
    await asyncio.wait_for(_told(other, " leading lead=leader session="), 60)


@on_every_store
async def test_a_machine_that_vanished_is_noticed_within_its_lease_and_a_sweep(fleet: Fleet) -> None:
    # what another machine would leave: a session without a lock here, and then silence
    elsewhere = Control(fleet.control.store, settings=fleet.control.settings)
    heard_ms = fleet.control.store.clock.now_ms()
    session = await elsewhere.claims.open_session(worker="elsewhere", host="elsewhere")
    job_id = (await fleet.control.jobs.submit("chaos_tasks.quick", {"number": 1})).id
    [job] = await elsewhere.claims.claim(["default"], session.id, 1)
    assert job.id == job_id
    await elsewhere.claims.start([job])
    began_ms = fleet.control.store.clock.now_ms()
    await asyncio.wait_for(_told(fleet.worker(), " leading lead=leader session="), 60)
    up_ms = fleet.control.store.clock.now_ms()

    job = await fleet.settled(job_id)
    events = await fleet.control.jobs.events(job_id)
    lost_ms = next(event.at_ms for event in events if event.to == "timed_out")

    assert job.status == "succeeded"
    lease_ms = fleet.control.settings.lease_s * 1000
    assert lease_ms <= lost_ms - heard_ms, "not before its lease is over"
    assert lost_ms < max(began_ms + lease_ms, up_ms) + 60_000, "a sweep, with jitter: 2.5 s if nothing else runs"


@on_every_store
async def test_a_long_job_of_a_live_worker_runs_once(fleet: Fleet) -> None:
    fleet.worker()
    other = fleet.worker()
    await fleet.ready(2)
    job_id = await _started(fleet, "waits", gate_name="go")

    await _lease_passes(fleet)
    fleet.open_gate("go")
    job = await fleet.settled(job_id)

    assert (job.status, job.token, len(fleet.traces(job_id, "start"))) == ("succeeded", 1, 1)
    assert other.alive


@on_every_store
async def test_a_stopped_engine_keeps_its_job_within_its_timeout(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.worker()
    await fleet.ready(2)
    job_id = await _started(fleet, "waits", gate_name="go")
    holder = fleet.traces(job_id)[0].pid
    assert holder in [*worker.engines, *fleet.workers[1].engines]

    await stop_between_writes(holder, fleet.control.store)
    await _lease_passes(fleet)
    kill(holder, signal.SIGCONT)
    fleet.open_gate("go")
    job = await fleet.settled(job_id)

    assert (job.status, job.token, len(fleet.traces(job_id, "start"))) == ("succeeded", 1, 1)


@on_every_store
async def test_a_stopped_supervisor_loses_its_sessions_and_its_ghost_is_refused(fleet: Fleet) -> None:
    stopped = fleet.worker()
    await fleet.ready()
    job_id = await _started(fleet, "waits", gate_name="go")
    other = fleet.worker()
    await fleet.ready(2)

    await stop_between_writes(stopped.pid, fleet.control.store)
    second = await fleet.traced(job_id, times=2)
    # now, while it runs: its process may be one that goes with it. The engine whose supervisor is stopped hears that
    # its session is lost, opens another and may be the first to ask
    able = {*other.everyone, *stopped.everyone}
    fleet.open_gate("go")
    job = await fleet.settled(job_id)
    kill(stopped.pid, signal.SIGCONT)
    after = await fleet.settled(await _started(fleet, "quick", number=1))

    assert (second.token, second.pid in able) == (2, True)
    assert (job.status, after.status) == ("succeeded", "succeeded")
    assert (await fleet.path(job_id)).count("succeeded") == 1


@on_every_store
async def test_after_all_this_the_store_is_sound(fleet: Fleet) -> None:
    worker = fleet.worker(processes=2)
    await fleet.ready(2)
    ids = [await _started(fleet, "naps", number=number) for number in range(5)]
    for engine in worker.engines:
        kill(engine, signal.SIGKILL)
    for job_id in ids:
        await fleet.settled(job_id)

    report = await check(fleet.control.store)

    assert report.clean, report.violations


async def _freed_after(fleet: Fleet, job_id: str) -> float:
    """Seconds until a job that is held is held no more (or by somebody else)."""
    begun_ms = fleet.control.store.clock.now_ms()
    await fleet.traced(job_id, times=2)
    events = await fleet.control.jobs.events(job_id)
    lost_ms = next(event.at_ms for event in events if event.source == "running")
    return (lost_ms - begun_ms) / 1000


async def _lease_passes(fleet: Fleet) -> None:
    """Real time: it is real processes that are to be left alone while it passes."""
    await asyncio.sleep(fleet.control.settings.lease_s + 2)


async def _told(worker: Worker, text: str) -> None:
    """Wait until a worker has said something."""
    while text not in worker.log.read_text():
        await asyncio.sleep(0.02)
