"""A clock that is an hour off, beside right ones: times are the server's, so nothing is early, late or reaped."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainstay.control import JobRequest
from tests.chaos.conftest import SHORT
from tests.chaos.fleet import Fleet
from tests.conformance.adapters import ADAPTERS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FOLDER = Path(__file__).with_name("wrong_clock")
RECKONED_MS = 100
HOUR_S = 3600
#: a start may be this late on a busy machine, which is not an hour
LATE_S = 60


@pytest.fixture(params=[adapter for adapter in ADAPTERS if adapter.server], ids=lambda adapter: adapter.name)
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    settings = {**SHORT, "jitter": "off", "backoff_base": "2s"}
    fleet = await Fleet(tmp_path, request.param.at(tmp_path), **settings).open()
    yield fleet
    await fleet.close()


def _off(seconds: int) -> dict[str, str]:
    return {"PYTHONPATH": str(FOLDER), "CLOCK_OFF_S": str(seconds)}


def test_the_clock_of_such_a_process_is_wrong_indeed() -> None:
    program = "import time; from mainstay.clock import SystemClock; print(SystemClock().now_ms(), time.monotonic())"
    told = subprocess.run(
        [sys.executable, "-c", program], env=_off(HOUR_S), capture_output=True, text=True, check=True
    ).stdout.split()

    assert int(told[0]) / 1000 - time.time() > HOUR_S - 60
    assert abs(float(told[1]) - time.monotonic()) < 60


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S])
async def test_a_delay_and_a_backoff_take_their_time_on_a_worker_with_a_wrong_clock(fleet: Fleet, off_s: int) -> None:
    fleet.worker(environment=_off(off_s))
    await fleet.ready()

    began = time.monotonic()
    delayed = (await fleet.control.jobs.submit("chaos_tasks.quick", {"number": 1}, delay="3s")).id
    failing = (await fleet.control.jobs.submit("chaos_tasks.fails_once", {})).id
    start = await fleet.traced(delayed)
    first, second = await fleet.traced(failing), await fleet.traced(failing, times=2)
    jobs = [await fleet.settled(delayed), await fleet.settled(failing)]

    assert 3 <= start.at - began < 3 + LATE_S
    assert 2 <= second.at - first.at < 2 + LATE_S
    assert [job.status for job in jobs] == ["succeeded", "succeeded"]
    for job in jobs:
        times = [event.at_ms for event in await fleet.control.jobs.events(job.id)]
        # who dates an event reckons the server's time from its last answers: to half of what an answer takes
        assert all(after - before > -RECKONED_MS for before, after in itertools.pairwise(times)), times
        assert abs(times[-1] / 1000 - time.time()) < 60, "what happened is dated by the server"


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S])
async def test_nobody_reaps_anybody_for_the_difference_of_their_clocks(fleet: Fleet, off_s: int) -> None:
    """Each holds a job for longer than a lease, and each sweeps all the while."""
    workers = [fleet.worker(concurrency=1, environment=_off(off_s)), fleet.worker(concurrency=1)]
    await fleet.ready(2)
    asked = [JobRequest("chaos_tasks.waits", {"gate_name": "go"}, {"timeout": "60s"}) for _ in workers]
    made = await fleet.control.jobs.submit_many(asked)
    holders = {(await fleet.traced(one.id)).pid for one in made}

    await asyncio.sleep(fleet.control.settings.lease_s + 1.5)
    fleet.open_gate("go")
    jobs = [await fleet.settled(one.id) for one in made]

    assert {pid in worker.everyone for worker in workers for pid in holders} == {True, False}
    assert all(holders & set(worker.everyone) for worker in workers), "each held one"
    assert [(job.status, job.token, job.crashes, job.losses) for job in jobs] == [("succeeded", 1, 0, 0)] * 2


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S])
async def test_jobs_keep_their_order_whoever_submits_them(fleet: Fleet, off_s: int) -> None:
    order = []
    with _client(fleet, off_s) as client:
        for number in range(5):
            order.append(_submitted(client, number))
            order.append((await fleet.control.jobs.submit("chaos_tasks.quick", {"number": number})).id)
            await _later(fleet)
    fleet.worker(concurrency=1)
    for job_id in order:
        await fleet.settled(job_id)

    started = [trace.job_id for trace in fleet.traces(what="start")]
    assert [set(pair) for pair in _pairs(started)] == [set(pair) for pair in _pairs(order)]


async def _later(fleet: Fleet) -> None:
    """Let more time pass than two clients may differ in what they know of the server's clock."""
    now_ms = fleet.control.store.clock.now_ms
    begun_ms = now_ms()
    while now_ms() < begun_ms + 100:
        await asyncio.sleep(0.01)


def _pairs(ids: list[str]) -> list[tuple[str, str]]:
    return list(zip(ids[::2], ids[1::2], strict=True))


@contextlib.contextmanager
def _client(fleet: Fleet, off_s: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(FOLDER / "client.py"), fleet.url, "chaos_tasks.quick"]
    environment = {**fleet.environment, **_off(off_s)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
            yield client
        finally:
            client.kill()


def _submitted(client: subprocess.Popen[str], number: int) -> str:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(f"{number}\n")
    client.stdin.flush()
    return client.stdout.readline().strip()
