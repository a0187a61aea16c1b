"""Whole workers under fire: supervisors, engines, children and the leader are killed at random points, and every job
that was accepted settles exactly once."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainstay.control import Control, Request
from mainstay.control.check import check
from mainstay.stores import JobStore, Query, open_store
from tests.conformance.adapters import ADAPTERS

ROOT = Path(__file__).parents[2]
KILLS = {"supervisor": 2, "leader": 2, "busy": 5, "any": 3}
WORKERS = 2
BATCH = 20
NAMES, WEIGHTS = ("takes", "takes_in_a_thread", "takes_apart"), (5, 5, 1)
#: however often they are hit, they are tried again
PATIENT = {"crash_budget": 1000, "retries": 1000}


class Fleet:
    """Workers of one store, each replaced when it is killed."""

    def __init__(self, url: str, log: Path) -> None:
        self._env = {**os.environ, "CREW_STORE": url}
        self._log = log
        self._workers = [self._started() for _ in range(WORKERS)]

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mainstay", "worker", "tests.worker.crew_program:stage", "--processes", "2"]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self._env, stderr=log)

    def kill_a_supervisor(self, rng: random.Random) -> None:
        place = rng.randrange(WORKERS)
        self._workers[place].kill()
        self._workers[place].wait()
        self._workers[place] = self._started()

    def descendants(self) -> list[int]:
        """Engines and their children."""
        found: list[int] = []
        todo = [worker.pid for worker in self._workers]
        while todo:
            children = _children(todo.pop())
            found += children
            todo += children
        return found

    @property
    def leader(self) -> str | None:
        """The session that said last that it leads."""
        told = re.findall(r" leading session=(\S+)", self._log.read_text())
        return told[-1] if told else None

    def drain(self) -> list[int]:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait() for worker in self._workers]

    def close(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()


def _children(pid: int) -> list[int]:
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it was killed meanwhile
        return []
    return [int(word) for text in texts for word in text.split()]


@pytest.fixture(params=[adapter for adapter in ADAPTERS if adapter.persistent], ids=lambda adapter: adapter.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = request.param.at(tmp_path)
    return found


@pytest.fixture
async def store(url: str) -> AsyncIterator[JobStore]:
    opened = await open_store(url)
    yield opened
    await opened.close()


@pytest.fixture
def fleet(store: JobStore, url: str, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(url, tmp_path / "log")
    yield made
    made.close()


async def _leader(fleet: Fleet, store: JobStore) -> int | None:
    """The process of the session that said last that it leads, if it lives."""
    pids = {session.id: session.pid for session in await store.sessions()}
    return pids.get(fleet.leader or "")


async def _busy(fleet: Fleet, store: JobStore) -> list[int]:
    """Processes that live and have begun something. What the dead held looks as if it ran until it is taken from
    them, and whoever only just starts can lose nothing."""
    pids = {session.id: session.pid for session in await store.sessions()}
    running = (await store.find(Query(status=("running",)), limit=1000)).jobs
    return sorted({pids.get(job.session or "") for job in running} & {*fleet.descendants()})


async def _strike(what: str, rng: random.Random, fleet: Fleet, store: JobStore) -> bool:
    """Kill a process of a kind, if there is one now."""
    if what == "supervisor":
        fleet.kill_a_supervisor(rng)
        return True
    victims = fleet.descendants()
    if what == "leader":
        victims = [pid for pid in victims if pid == await _leader(fleet, store)]
    elif what == "busy":
        victims = await _busy(fleet, store)
    if not victims:
        return False
    try:
        os.kill(rng.choice(victims), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _some_work(rng: random.Random) -> list[Request]:
    names = rng.choices(NAMES, WEIGHTS, k=BATCH)
    return [Request(name, {"seconds": rng.choice([0.0, 0.01, 0.1, 1.0])}, PATIENT) for name in names]


@pytest.mark.slow
@pytest.mark.timeout(300)  # half a minute on an idle machine; a busy one must not fail it
async def test_every_accepted_job_settles_exactly_once_whoever_is_killed(store: JobStore, fleet: Fleet) -> None:
    rng = random.Random(3)
    control = Control(store)
    ids: list[str] = []

    for what in rng.sample(list(KILLS), k=sum(KILLS.values()), counts=KILLS.values()):
        # a few at a time, so that there is work to hurt until the last blow
        ids += [submitted.id for submitted in await control.submit_many(_some_work(rng))]
        while not await _busy(fleet, store):
            await asyncio.sleep(0.01)
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        while not await _strike(what, rng, fleet, store):
            await asyncio.sleep(0.01)

    jobs = [await control.wait(job_id, "250s") for job_id in ids]
    assert Counter(job.status for job in jobs) == {"succeeded": len(ids)}
    for job_id in ids:
        assert sum(event.to == "succeeded" for event in await control.events(job_id)) == 1
    assert sum(job.crashes for job in jobs) >= KILLS["busy"] // 2, "too few were hurt"
    assert fleet.drain() == [0] * WORKERS
    assert (await check(store)).violations == ()
    assert await store.sessions() == []
