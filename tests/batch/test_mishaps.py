"""Processes that die or stand still at the worst place, and a store of jobs that is away while units run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mainstay import App, Batch, BatchRun
from mainstay.control.check import check
from mainstay.model import Job
from mainstay.outputs import Unit, output_path
from servers import Proxy
from tests import places
from tests.batch import mishaps
from tests.batch.studies import all_rows, lacking, path, places_made, unit_rows
from tests.chaos.conftest import SHORT
from tests.chaos.fleet import Fleet, Worker, kill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
SUCCEEDED = ["pending", "running", "finalizing", "validating", "succeeded"]


class Study:
    def __init__(self, fleet: Fleet, app: App, batch: Batch) -> None:
        self.fleet = fleet
        self.app = app
        self.batch = batch
        self.folder = fleet.folder
        self.control = fleet.control

    async def submit(self, *, seeds: int = 40, n: int = 1) -> BatchRun:
        return await self.app.submit_batch(self.batch, params=[{"n": n}], seeds=seeds)

    def ran(self) -> Counter[str]:
        file = self.folder / "ran"
        return Counter(file.read_text().splitlines() if file.exists() else ())

    async def until(self, there: Callable[[], object], what: str) -> None:
        ends = time.monotonic() + 60
        while not there():
            assert time.monotonic() < ends, f"{what} did not happen\n{self.fleet.told()}"
            await asyncio.sleep(0.01)

    async def driver(self, run: BatchRun) -> Job:
        [row] = [row for row in await all_rows(self.control, run.id) if row.name.endswith(":driver")]
        return row

    async def settled(self, run: BatchRun) -> str:
        return (await self.fleet.settled(run.id, "120s")).status


@contextlib.asynccontextmanager
async def study_on(url: str, folder: Path, *, crash_budget: int = 50, **settings: str) -> AsyncIterator[Study]:
    outputs = f"file://{folder}/outputs?sync=off"
    fleet = Fleet(folder, url, target="tests.batch.mishaps:app", home=REPOSITORY, poll="200ms", **settings)
    inherited = os.environ.get("PYTHONPATH", "")
    fleet.environment |= {"STUDY_OUTPUTS": outputs, "PYTHONPATH": f"{REPOSITORY}:{inherited}"}
    app, batch = mishaps.program(url, outputs, crash_budget=crash_budget)
    await fleet.open()
    try:
        async with app:
            yield Study(fleet, app, batch)
    finally:
        await fleet.close()


@pytest.fixture
async def study(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Study]:
    """On SQLite, with the settings that a test is parametrised with."""
    settings = getattr(request, "param", {})
    async with study_on(f"sqlite:///{tmp_path}/jobs.db", tmp_path, **settings) as study:
        yield study


@pytest.mark.parametrize("study", [{"crash_budget": 1}], indirect=True, ids=["given up at once"])
async def test_a_worker_that_is_killed_while_it_publishes_leaves_a_missing_output_that_a_resume_makes(
    study: Study,
) -> None:
    (study.folder / "kill-in-publish").touch()
    study.fleet.worker(concurrency=1)
    run = await study.submit(seeds=6)

    assert await study.settled(run) == "partial"
    unit = Unit("study", "1", {"n": 1}, 3)
    there = study.folder / "outputs" / output_path(unit, "result.txt")
    assert there.read_bytes() == b"3", "all of it was written but what vouches for it"
    listed = await lacking(run)
    assert [one for one in listed if "/study/" in one[0]] == [(output_path(unit, "result.txt"), "missing")]
    rows = {str(row.unit): row for row in await unit_rows(study.control, run.id)}
    assert (rows["n=1-s3"].status, rows["n=1-s3"].crashes) == ("failed", 1)

    await run.resume()
    assert await study.settled(run) == "succeeded"
    assert study.ran() == {**{f"n=1-s{seed}": 1 for seed in range(6)}, "n=1-s3": 2}


async def test_a_driver_that_is_killed_in_the_middle_of_planning_makes_no_unit_twice(study: Study) -> None:
    (study.folder / "kill-in-planning").touch()
    study.fleet.worker(concurrency=1)
    run = await study.submit()

    assert await study.settled(run) == "succeeded"
    assert not (study.folder / "kill-in-planning").exists(), "it was killed"
    counts = await places_made(study.control, run.id)
    assert (counts[0, 0], set(counts.values())) == (1, {1})
    assert {index for group, index in counts if group == 0} == set(range(40))
    driver = await study.fleet.settled((await study.driver(run)).id)
    assert (driver.status, driver.crashes) == ("succeeded", 1)
    report = await check(study.control.store)
    assert report.clean, report.violations


@pytest.mark.parametrize("study", [SHORT], indirect=True, ids=["short lease"])
async def test_a_driver_that_comes_back_as_a_ghost_is_refused_and_doubles_nothing(study: Study) -> None:
    """Frozen while it plans, given up by its lease, replaced by another, and then it goes on."""
    (study.folder / "hold-planning").touch()
    workers = [study.fleet.worker(concurrency=4), study.fleet.worker(concurrency=4)]
    await study.fleet.ready(2)
    run = await study.submit()
    await study.until(lambda: list(study.folder.glob("hold-planning.*")), "planning")
    [held] = study.folder.glob("hold-planning.*")
    [frozen] = [worker for worker in workers if held.suffix == f".{worker.engines[0]}"]
    for pid in processes(frozen):
        kill(pid, signal.SIGSTOP)

    assert await study.settled(run) == "succeeded"
    driver = await study.driver(run)
    events = len(await study.control.jobs.events(run.id))
    (study.folder / "go-on").touch()
    # the ghost before its supervisor, which would end an engine that lost its session before it has written anything
    for pid in processes(frozen)[1:]:
        kill(pid, signal.SIGCONT)
    refused = await study.control.store.refusals(driver.id)
    while not refused:
        await asyncio.sleep(0.02)
        refused = await study.control.store.refusals(driver.id)
    kill(frozen.pid, signal.SIGCONT)

    assert refused[0].token < driver.token
    assert await path(study.control, run.id) == SUCCEEDED
    assert len(await study.control.jobs.events(run.id)) == events
    counts = await places_made(study.control, run.id)
    assert (len(counts), set(counts.values())) == (41, {1})
    assert {*study.ran()} == {f"n=1-s{seed}" for seed in range(40)}
    assert frozen.alive, study.fleet.told()


def processes(worker: Worker) -> list[int]:
    return [worker.pid, *worker.engines, *worker.children]


@pytest.mark.parametrize("kind", ["postgresql", "redis"])
async def test_units_go_on_and_publish_while_the_store_of_jobs_is_away(kind: str, tmp_path: Path) -> None:
    with Proxy.before(places.place(kind, tmp_path)) as proxy:
        async with study_on(proxy.url, tmp_path) as study:
            (study.folder / "gate").touch()
            worker = study.fleet.worker(concurrency=4)
            run = await study.submit(seeds=10)
            await study.until(lambda: len(study.ran()) >= 4, "units")

            proxy.refuse()
            proxy.cut()
            (study.folder / "go").touch()
            made = study.folder / "outputs"
            await study.until(lambda: len(list(made.glob("v1/study/**/_entry-*"))) >= 4, "publishing")
            proxy.accept()

            assert await study.settled(run) == "succeeded"
            assert await path(study.control, run.id) == SUCCEEDED
            assert worker.alive
            rows = await unit_rows(study.control, run.id)
            assert {row.failures for row in rows} == {0}
            counts = await places_made(study.control, run.id)
            assert (len(counts), set(counts.values())) == (11, {1})
            report = await check(study.control.store)
            assert report.clean, report.violations
