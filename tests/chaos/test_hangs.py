"""Jobs that hang: the job is ended by its limit, its neighbours are not, and the worker goes on."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.control import JobRequest
from tests.chaos.fleet import Fleet, gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HUNG = {"timeout": "1s", "grace": "1s", "retries": 0}


@pytest.mark.parametrize("name", ["blocks_the_loop", "holds_the_interpreter", "deaf_thread"])
async def test_a_hung_job_is_ended_by_its_timeout_and_its_neighbours_are_not(fleet: Fleet, name: str) -> None:
    """A coroutine that blocks its loop, native code that keeps the interpreter, a thread that does not listen."""
    fleet.worker(concurrency=4)
    neighbour = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "go"})).id
    await fleet.traced(neighbour)
    hung = (await fleet.control.jobs.submit(f"chaos_tasks.{name}", {}, **HUNG)).id

    job = await fleet.settled(hung)
    fleet.open_gate("go")
    beside = await fleet.settled(neighbour)
    after = await fleet.settled((await fleet.control.jobs.submit("chaos_tasks.quick", {"number": 1})).id)

    assert await fleet.path(hung) == ["pending", "running", "timed_out", "quarantined"]
    assert (job.crashes, job.failures) == (0, 1)
    assert (beside.status, beside.crashes, beside.failures) == ("succeeded", 0, 0)
    assert after.status == "succeeded"


async def test_a_stall_ends_a_silent_job_and_not_one_whose_progress_rises(fleet: Fleet) -> None:
    fleet.worker()
    limits = {"stall_timeout": "1s", "timeout": "off", "grace": "1s", "retries": 0}
    silent = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "never"}, **limits)).id
    rising = (await fleet.control.jobs.submit("chaos_tasks.climbs", {"steps": 8, "pause_s": 0.4}, **limits)).id

    stalled, climbed = await asyncio.gather(fleet.settled(silent), fleet.settled(rising))

    assert (stalled.status, stalled.error and stalled.error.code) == ("quarantined", "stalled")
    assert (climbed.status, climbed.failures) == ("succeeded", 0)


@pytest.mark.parametrize("name", ["blocks_the_loop", "holds_the_interpreter", "deaf_thread"])
async def test_a_cancel_ends_what_hangs_and_counts_nothing_to_its_neighbours(fleet: Fleet, name: str) -> None:
    """Asked first, by force after the grace: the process that would not let go of it is gone in the end."""
    fleet.worker(concurrency=4)
    neighbour = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "go"})).id
    await fleet.traced(neighbour)
    hung = (await fleet.control.jobs.submit(f"chaos_tasks.{name}", {}, grace="3s")).id
    process = (await fleet.traced(hung)).pid

    await fleet.control.operations.cancel(hung, actor="ann", reason="enough")
    job = await fleet.settled(hung)
    fleet.open_gate("go")
    beside = await fleet.settled(neighbour)

    assert (job.status, job.crashes, job.failures) == ("cancelled", 0, 0)
    assert (beside.status, beside.crashes, beside.failures) == ("succeeded", 0, 0)
    await asyncio.wait_for(_gone(process), 60)


async def _gone(pid: int) -> None:
    while not gone(pid):
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("fleet", ["sqlite short"], indirect=True)
async def test_a_busy_job_does_not_starve_the_heartbeat(fleet: Fleet) -> None:
    """Its loop is blocked for longer than the lease, within its timeout: nobody takes the job away."""
    fleet.worker(concurrency=1)
    fleet.worker(concurrency=1)
    await fleet.ready(2)
    for_s = fleet.control.settings.lease_s + 1.5
    [made] = await fleet.control.jobs.submit_many([JobRequest("chaos_tasks.busy", {"for_s": for_s})])

    job = await fleet.settled(made.id)

    assert (job.status, job.token, len(fleet.traces(made.id, "start"))) == ("succeeded", 1, 1)
