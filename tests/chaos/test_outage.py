"""The store is away for a while: the fleet waits, loses nothing, and resumes by itself."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest

import servers
from mainstay.control import JobRequest
from mainstay.control.check import check
from servers import Postgres, Proxy, Redis
from tests.chaos.conftest import SHORT
from tests.chaos.fleet import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
async def file_fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Calls wait for a lock as long as for a lease, as they do by default."""
    async with _fleet(tmp_path, f"sqlite:///{tmp_path}/jobs.db?busy_timeout={SHORT['lease']}") as fleet:
        yield fleet


async def test_a_fleet_resumes_by_itself_after_its_store_was_locked_for_three_leases(file_fleet: Fleet) -> None:
    """Sessions could not be heard of, nobody could hear of them either, and every call gave up."""
    fleet = file_fleet
    workers = [fleet.worker(), fleet.worker()]
    await fleet.ready(2)
    engines = [worker.engines for worker in workers]
    running = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "go"})).id
    await fleet.traced(running)
    waiting = await fleet.control.jobs.submit_many([JobRequest("chaos_tasks.naps", {"number": n}) for n in range(50)])

    locker = apsw.Connection(str(fleet.folder / "jobs.db"))
    locker.set_busy_timeout(30_000)
    locker.execute("BEGIN EXCLUSIVE")
    await asyncio.sleep(3 * fleet.control.settings.lease_s + 1)
    locker.execute("COMMIT")
    locker.close()
    fleet.open_gate("go")
    jobs = [await fleet.settled(one.id) for one in waiting]
    job = await fleet.settled(running)

    assert {job.status for job in jobs} == {"succeeded"}
    runs = len(fleet.traces(running, "start"))
    assert (job.status, job.token, runs) == ("succeeded", 1, 1), await fleet.story(running)
    assert [worker.engines for worker in workers] == engines, "nobody was restarted"


# -- servers of the test's own, which keep what they acknowledged ---------------------------------------------------


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Postgres | Redis]:
    with servers.folder("mainstay-outage-") as place:
        made = Redis(place, appendonly="yes", appendfsync="always") if request.param == "redis" else Postgres(place)
        yield made
        made.stop()


@contextlib.asynccontextmanager
async def _fleet(folder: Path, url: str) -> AsyncIterator[Fleet]:
    fleet = await Fleet(folder, url, **SHORT).open()
    try:
        yield fleet
    finally:
        await fleet.close()


on_servers = pytest.mark.parametrize("server", ["postgres", "redis"], indirect=True)


@pytest.mark.parametrize(
    ("server", "end", "away_s"), [("postgres", "stop", 8), ("redis", "kill", 4)], indirect=["server"]
)
async def test_a_fleet_resumes_by_itself_after_its_server_was_away(
    server: Postgres | Redis, end: str, away_s: float, tmp_path: Path
) -> None:
    """Longer than a lease, with a job that runs all the while: it may be run again, but its end counts once."""
    async with _fleet(tmp_path, f"{server.url()}?auto_migrate=on") as fleet:
        workers = [fleet.worker(), fleet.worker()]
        await fleet.ready(2)
        running = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "go"}, crash_budget=10)).id
        await fleet.traced(running)
        asked = [JobRequest("chaos_tasks.naps", {"number": n}, {"crash_budget": 10}) for n in range(200)]
        waiting = await fleet.control.jobs.submit_many(asked)

        getattr(server, end)()
        await asyncio.sleep(away_s)
        server.start()
        fleet.open_gate("go")
        jobs = [await fleet.settled(one.id) for one in waiting]
        job = await fleet.settled(running)
        after = await fleet.settled((await fleet.control.jobs.submit("chaos_tasks.quick", {"number": 1})).id)

        assert {job.status for job in [*jobs, job, after]} == {"succeeded"}
        for each in [*jobs, job]:
            assert (await fleet.path(each.id)).count("succeeded") == 1
        assert all(worker.alive for worker in workers), fleet.told()
        await _assert_sound(fleet)


@on_servers
async def test_nobody_is_taken_for_dead_because_the_server_stood_still(
    server: Postgres | Redis, tmp_path: Path
) -> None:
    """For longer than a lease, with everybody connected. When it goes on, it is asked who is silent before it has heard
    anybody."""
    async with _fleet(tmp_path, f"{server.url()}?auto_migrate=on") as fleet:
        fleet.worker()
        fleet.worker()
        await fleet.ready(2)
        running = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "go"})).id
        await fleet.traced(running)
        before_ms = max(session.beat_ms for session in await fleet.control.store.sessions())

        with server.frozen():
            await asyncio.sleep(2 * fleet.control.settings.lease_s)
        while min(session.beat_ms for session in await fleet.control.store.sessions()) <= before_ms:
            await asyncio.sleep(0.02)
        fleet.open_gate("go")
        job = await fleet.settled(running)

        runs = len(fleet.traces(running, "start"))
        assert (job.status, job.token, runs) == ("succeeded", 1, 1), await fleet.story(running)


@pytest.mark.parametrize("how", ["stopped", "frozen"])
@on_servers
async def test_a_job_that_saves_while_its_server_is_away_for_fifteen_seconds_pays_nothing(
    server: Postgres | Redis, how: str, tmp_path: Path
) -> None:
    """On the loop, in a thread and in a child process; with no retries, so that one failure would be the end."""
    async with _fleet(tmp_path, f"{server.url()}?auto_migrate=on") as fleet:
        worker = fleet.worker()
        await fleet.ready()
        names = ("saves", "saves_in_thread", "saves_in_child")
        ids = [
            (await fleet.control.jobs.submit(f"chaos_tasks.{name}", {"gate_name": "go"}, retries=0)).id
            for name in names
        ]
        for job_id in ids:
            await fleet.traced(job_id, "saved")

        if how == "stopped":
            server.stop()
            await asyncio.sleep(15)
            server.start()
        else:
            with server.frozen():
                await asyncio.sleep(15)
        fleet.open_gate("go")
        jobs = [await fleet.settled(job_id) for job_id in ids]

        for job in jobs:
            paid = (job.status, job.failures, job.crashes, job.token)
            assert paid == ("succeeded", 0, 0, 1), await fleet.story(job.id)
        assert worker.alive
        await _assert_sound(fleet)


@on_servers
async def test_a_fleet_whose_wire_is_cut_again_and_again_loses_nothing_and_doubles_nothing(
    server: Postgres | Redis, tmp_path: Path
) -> None:
    """All its connections at once, at random moments and in the middle of what is said, in either direction."""
    chance = random.Random(5)
    with Proxy.before(server.url()) as proxy:
        async with _fleet(tmp_path, f"{proxy.url}?auto_migrate=on") as fleet:
            fleet.worker(processes=2)
            fleet.worker()
            await fleet.ready(3)
            made = []
            for number in range(18):
                asked = [
                    JobRequest("chaos_tasks.naps", {"number": n}, {"crash_budget": 50, "retries": 50})
                    for n in range(20)
                ]
                made += await fleet.control.jobs.submit_many(asked)
                _spoil(proxy, number, chance)
                await asyncio.sleep(chance.uniform(0.05, 0.4))
            proxy.cut_after()
            jobs = [await fleet.settled(one.id, "5m") for one in made]

            assert proxy.cut_by_bytes > 5, "the wire was cut in the middle of what was said"
            assert {job.status for job in jobs} == {"succeeded"}
            for job in jobs:
                assert (await fleet.path(job.id)).count("succeeded") == 1
                tokens = [start.token for start in fleet.traces(job.id, "start")]
                assert len(tokens) == len(set(tokens)), "a claim is run once; running again takes another claim"
            await _assert_sound(fleet)


def _spoil(proxy: Proxy, number: int, chance: random.Random) -> None:
    if number % 3 == 0:
        proxy.cut()
    elif number % 3 == 1:
        proxy.cut_after(up=chance.randrange(3000))
    else:
        proxy.cut_after(down=chance.randrange(3000))


@on_servers
async def test_a_fleet_outlives_a_wire_that_is_dead_without_a_word(server: Postgres | Redis, tmp_path: Path) -> None:
    """Nothing arrives and nothing is refused, for more than two leases, as behind a firewall that forgot us."""
    with Proxy.before(server.url()) as proxy:
        async with _fleet(tmp_path, f"{proxy.url}?auto_migrate=on") as fleet:
            fleet.worker()
            await fleet.ready()
            made = await fleet.control.jobs.submit_many(
                [JobRequest("chaos_tasks.naps", {"number": n}) for n in range(50)]
            )
            await fleet.traced(made[0].id)

            proxy.stall()
            await asyncio.sleep(7)
            proxy.cut()
            proxy.flow()
            jobs = [await fleet.settled(one.id) for one in made]

            assert {job.status for job in jobs} == {"succeeded"}
            for job in jobs:
                assert (await fleet.path(job.id)).count("succeeded") == 1
            await _assert_sound(fleet)


async def _assert_sound(fleet: Fleet) -> None:
    report = await check(fleet.control.store)
    assert report.clean, report.violations
