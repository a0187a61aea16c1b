"""The server goes away under a real worker, and the worker goes on by itself when it is back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay.control import Control
from mainstay.control.check import check
from mainstay.stores import open_store
from servers import Redis

ROOT = Path(__file__).parents[3]
LONG_S, LONG = 60, "60s"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    made = Redis(tmp_path, appendonly="yes", appendfsync="always")
    yield made
    made.stop()


@pytest.fixture
def worker(server: Redis, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "mainstay", "worker", "tests.worker.crew_program:stage", "--processes", "1"]
    # patient enough with a session for the time the server is away
    environment = {**os.environ, "CREW_STORE": f"{server.url()}?retries=1", "CREW_LEASE": "20s"}
    with (
        (tmp_path / "worker.log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log) as made,
    ):
        yield made
        if made.poll() is None:
            made.kill()


@pytest.mark.timeout(900)  # five seconds on an idle machine; a busy one must not fail it
async def test_a_worker_goes_on_by_itself_when_its_server_is_back(
    server: Redis, worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    control = Control(await open_store(f"{server.url()}?retries=100"))
    first = await control.jobs.submit("takes", {"seconds": 0})
    assert (await control.jobs.wait(first.id, timeout=LONG)).status == "succeeded"
    gate = tmp_path / "gate"
    held = await control.jobs.submit("waits_for", {"path": str(gate)})
    # "running" is not enough: the server may die after it answers us, and before it answers the claim
    while (await control.jobs.get(held.id)).started_ms is None:
        await asyncio.sleep(0.01)

    server.kill()
    server.start()
    gate.touch()

    late = [await control.jobs.submit("takes", {"seconds": 0}) for _ in range(5)]
    done = await control.jobs.wait(held.id, timeout=LONG)
    assert (done.status, done.token) == ("succeeded", 1)
    for job in late:  # a claim whose answer was lost for good is given back, and so costs a second one
        assert (await control.jobs.wait(job.id, timeout=LONG)).status == "succeeded"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LONG_S) == 0
    assert (await check(control.store)).clean
    await control.store.close()
