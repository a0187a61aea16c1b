"""The store is away for a while: the fleet waits, loses nothing, and resumes by itself."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from mainstay.control import Request
from tests.chaos.fleet import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def test_a_fleet_resumes_by_itself_after_its_store_was_locked_for_thirty_seconds(fleet: Fleet) -> None:
    """More than three leases: sessions could not be heard of, and nobody could hear of them either."""
    workers = [fleet.worker(), fleet.worker()]
    await fleet.ready(2)
    engines = [worker.engines for worker in workers]
    running = (await fleet.control.submit("chaos_tasks.waits", {"gate_name": "go"})).id
    await fleet.traced(running)
    waiting = await fleet.control.submit_many([Request("chaos_tasks.naps", {"number": n}) for n in range(50)])

    locker = apsw.Connection(str(fleet.folder / "jobs.db"))
    locker.set_busy_timeout(30_000)
    locker.execute("BEGIN EXCLUSIVE")
    await asyncio.sleep(30)
    locker.execute("COMMIT")
    locker.close()
    fleet.open_gate("go")
    jobs = [await fleet.settled(one.id) for one in waiting]
    job = await fleet.settled(running)

    assert {job.status for job in jobs} == {"succeeded"}
    assert (job.status, job.token, len(fleet.traces(running, "start"))) == ("succeeded", 1, 1)
    assert [worker.engines for worker in workers] == engines, "nobody was restarted"
