"""Any mix of failures and damage, round after round: what is told is what is on the disk, what runs is what lacks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from mainstay import Aggregate, App, BatchRun, Outputs, grid
from mainstay.batch import UnitResult
from mainstay.testing import Harness
from tests.batch.studies import DAMAGES, lacking

SETS, SEEDS = (1, 2, 3), range(3)


class Study:
    """Sums over units, and a total over sums. All its results are known beforehand."""

    def __init__(self, root: Path) -> None:
        self.app = App("memory:", outputs=f"file://{root}?sync=off")
        self.root = root
        self.bad: set[str] = set()
        self.ran: list[str] = []

        def sum_up(params: dict, runs: list) -> int:
            self._run(f"sum {params['n']}")
            return sum(int(one.read()) for one in runs)

        def total(sets: list[UnitResult], out: Outputs) -> None:
            self._run("total")
            out.save("total.txt", str(sum(one.json() for one in sets)).encode())

        @self.app.batch(
            name="study",
            outputs=["result.txt"],
            aggregate=sum_up,
            overall=Aggregate(total, outputs=["total.txt"]),
            retries=0,
            version="1",
        )
        def study(params: dict, seed: int, out: Outputs) -> None:
            self._run(f"{params['n']} {seed}")
            out.save("result.txt", str(100 * params["n"] + seed).encode())

        self.batch = study
        self.files: dict[str, tuple[str, bytes]] = {}

    def _run(self, what: str) -> None:
        self.ran.append(what)
        if what in self.bad:
            raise ValueError("not this time")

    async def submit(self) -> BatchRun:
        run = await self.app.submit_batch(self.batch, params=grid(n=list(SETS)), seeds=SEEDS)
        for one in await run.outputs():
            what, body = self._expected(one.unit, one.output)
            self.files[what] = one.path, body
        return run

    def _expected(self, unit: str, output: str) -> tuple[str, bytes]:
        if output == "total.txt":
            return "total", str(sum(300 * n + 3 for n in SETS)).encode()
        n = int(unit.partition("=")[2].partition("-")[0])
        if output == "sum_up.json":
            return f"sum {n}", json.dumps(300 * n + 3).encode()
        seed = int(unit.rpartition("-s")[2])
        return f"{n} {seed}", str(100 * n + seed).encode()

    def lacks(self) -> set[str]:
        """By the disk alone: what was not published, or is not what it ought to be."""
        return {
            what
            for what, (path, body) in self.files.items()
            if not (self.root / path).exists() or (self.root / path).read_bytes() != body
        }

    def harm(self, chance: random.Random) -> set[str]:
        chosen = {what for what in sorted(self.files.keys() - self.lacks()) if chance.random() < 0.15}
        for what in sorted(chosen):
            chance.choice(list(DAMAGES))(self.root / self.files[what][0])
        return chosen


@pytest.mark.parametrize("seed", range(12))
async def test_a_batch_tells_what_is_on_the_disk_and_runs_what_lacks(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    study = Study(root)
    with Harness(study.app, seed=seed) as box:
        run = await study.submit()
        for _ in range(6):
            study.bad = {what for what in study.files if chance.random() < 0.1}
            lacked = study.lacks()
            study.ran.clear()
            await box.drain(until="0s")
            # of one that had nothing to run all is said by now
            over = (await run.status()).job.status == "succeeded"
            harmed = study.harm(chance) if chance.random() < 0.5 and not over else set()
            await box.drain()

            job, lacks = await run.wait(), study.lacks()
            wanted = "succeeded" if not lacks else "failed" if len(lacks) == len(study.files) else "partial"
            assert (job.status, {path for path, _ in await lacking(run)}) == (
                wanted, {study.files[what][0] for what in lacks}
            )  # fmt: skip
            assert len(set(study.ran)) == len(study.ran), "nothing runs twice in a round"
            assert units(study.ran) == units(lacked)
            assert {*study.ran} - units(study.ran) <= lacked | harmed, "what is made of them is made anew if it lacks"
            run = await next_round(study, run, chance)


def units(names: Iterable[str]) -> set[str]:
    return {name for name in names if name[0].isdigit()}


async def next_round(study: Study, run: BatchRun, chance: random.Random) -> BatchRun:
    """Perhaps more damage; then the batch is resumed, or repaired by another, or submitted again if it is whole."""
    study.harm(chance)
    lacks = study.lacks()
    to_run = await run.to_run()
    assert {one.unit for one in to_run if one.group == 0} == {f"n={what.replace(' ', '-s')}" for what in units(lacks)}
    resumed = await run.resume()
    if (await run.status()).job.status == "succeeded":
        assert resumed.how == ("linked" if lacks else "nothing")
    else:
        assert (resumed.how, resumed.id) == ("resumed", run.id)
    return study.app.batch_run(resumed.id) if lacks else await study.submit()
