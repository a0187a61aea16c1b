"""A whole study on real workers that are killed, and damage to what it made: nothing is lost, and exactly what is
damaged is run again."""

from __future__ import annotations

import asyncio
import csv
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples import sir
from mainstay import App, Batch, BatchRun
from mainstay.control.check import check
from mainstay.outputs import Unit, output_path
from tests.batch import sir_program
from tests.batch.studies import damage, lacking, made, places_made, unit_rows
from tests.chaos.fleet import Fleet, Worker, kill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
UNITS = [(params, seed) for params in sir.PARAMS for seed in sir.SEEDS]


class Study:
    """The study, its workers, and what the simulations wrote down."""

    def __init__(self, fleet: Fleet, app: App, study: Batch, root: Path) -> None:
        self.fleet = fleet
        self.app = app
        self.study = study
        self.root = root

    async def submit(self) -> BatchRun:
        return await self.app.submit_batch(self.study, params=sir.PARAMS, seeds=sir.SEEDS)

    def worker(self) -> Worker:
        return self.fleet.worker(processes=2, concurrency=4)

    def ran(self) -> list[str]:
        """Every line, in order."""
        try:
            return (self.fleet.folder / "ran").read_text().splitlines()
        except FileNotFoundError:
            return []

    def forget(self) -> None:
        (self.fleet.folder / "ran").unlink()

    async def has_run(self, *, lines: int = 0, what: str = "") -> None:
        """Wait for so many lines, or for one in particular."""
        ends = time.monotonic() + 120
        while len(found := self.ran()) < lines or (what and what not in found):
            assert time.monotonic() < ends, f"{len(found)} lines, no {lines} and {what!r}\n{self.fleet.told()}"
            await asyncio.sleep(0.005)

    async def settled(self, run: BatchRun) -> str:
        return (await self.fleet.settled(run.id, "120s")).status


@pytest.fixture
async def study(tmp_path: Path) -> AsyncIterator[Study]:
    root = tmp_path / "outputs"
    url = f"sqlite:///{tmp_path}/jobs.db"
    fleet = Fleet(tmp_path, url, target="tests.batch.sir_program:app", home=REPOSITORY, poll="200ms")
    inherited = os.environ.get("PYTHONPATH", "")
    fleet.environment |= {"SIR_OUTPUTS": f"file://{root}?sync=off", "PYTHONPATH": f"{REPOSITORY}:{inherited}"}
    app, batch = sir_program.program(url, f"file://{root}?sync=off")
    await fleet.open()
    async with app:
        yield Study(fleet, app, batch, root)
    await fleet.close()


def name(params: dict[str, float], seed: int) -> str:
    return f"beta={params['beta']}_gamma={params['gamma']}-s{seed}"


def paths(units: list[tuple[dict[str, float], int]]) -> list[str]:
    return [output_path(Unit("sir", "1", params, seed), "course.csv") for params, seed in units]


async def test_a_study_whose_workers_are_killed_and_whose_outputs_are_damaged_ends_whole(study: Study) -> None:
    chance = random.Random(5)
    control = study.fleet.control
    run = await study.submit()
    await kill_in_the_middle(study, chance)

    # the units are done and the table waits: this is before validation
    await study.has_run(what="table")
    chosen = chance.sample(UNITS, 9)
    wanted = sorted(name(*unit) for unit in chosen)
    first = study.ran()
    harmed = damage(study.root, paths(chosen))
    study.forget()
    study.fleet.open_gate(sir_program.GATE)

    assert await study.settled(run) == "partial"
    assert await lacking(run) == harmed
    assert {*first} == {name(*unit) for unit in UNITS} | {"table"}
    counts = await places_made(control, run.id)
    assert (len(counts), set(counts.values())) == (221, {1}), "a row for each unit, whoever was killed"

    # a resume runs exactly what is damaged; what was made of it is intact, and made of the same
    assert sorted(one.unit for one in await run.to_run() if one.run) == wanted
    before = await made(control, run.id)
    await run.resume()
    assert await study.settled(run) == "succeeded"
    assert sorted(study.ran()) == wanted
    assert await made(control, run.id) - before == Counter(wanted)

    # a second resume runs none
    again = await run.resume()
    assert (again.how, sorted(study.ran())) == ("nothing", wanted)

    # the same damage after success is told, and a linked job repairs it
    assert damage(study.root, paths(chosen)) == harmed
    study.forget()
    await a_linked_job_repairs(study, run, harmed, wanted)

    await the_numbers_are_those_of_an_undisturbed_run(run)
    assert {row.status for row in await unit_rows(control, run.id)} <= {"succeeded", "skipped"}
    report = await check(control.store)
    assert report.clean, report.violations


async def kill_in_the_middle(study: Study, chance: random.Random) -> None:
    """Two workers of two engines each; engines die, and a whole worker, while units run."""
    workers = [study.worker(), study.worker()]
    for number, lines in enumerate((10, 40, 80, 120, 160)):
        await study.has_run(lines=lines)
        if number == 2:
            workers.pop(0).kill()
            workers.append(study.worker())
        else:
            kill(chance.choice([engine for worker in workers for engine in worker.engines]), signal.SIGKILL)


async def a_linked_job_repairs(study: Study, run: BatchRun, harmed: list[tuple[str, str]], wanted: list[str]) -> None:
    control = study.fleet.control
    events = len(await control.jobs.events(run.id))

    found = await run.validate(force=True)
    resumed = await run.resume()
    repair = study.app.batch_run(resumed.id)

    assert (found.verdict, sorted((one.path, one.state) for one in found.first)) == ("partial", harmed)
    assert (resumed.how, await study.settled(repair)) == ("linked", "succeeded")
    assert (await repair.status()).spec.resumed_from == run.id
    assert sorted(study.ran()) == wanted
    assert await made(control, repair.id) == Counter(wanted)
    assert (await control.jobs.get(run.id)).status == "succeeded"
    assert len(await control.jobs.events(run.id)) == events, "no change of state, and not even a note"
    assert (await run.validate(force=True)).verdict == "succeeded"


async def the_numbers_are_those_of_an_undisturbed_run(run: BatchRun) -> None:
    rows = list(csv.DictReader((await run.read("table")).decode().splitlines()))
    assert [(float(row["beta"]), float(row["gamma"])) for row in rows] == [tuple(one.values()) for one in sir.PARAMS]
    params, seed = UNITS[7]
    expected = sir.epidemic(sir.Params(**params), random.Random(seed))
    course = (await run.read("course", params, seed)).decode().splitlines()
    assert course[1:] == [",".join(map(str, [day, *counts])) for day, counts in enumerate(expected, 1)]
