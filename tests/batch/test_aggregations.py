"""Aggregations: made of whole inputs only, listed when they are not, and re-made without running units again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mainstay import Aggregate, App, Outputs, grid
from mainstay.batch import UnitResult
from mainstay.errors import StoreUnavailable
from mainstay.outputs import OutputStore, Unit
from mainstay.testing import Harness
from tests.batch.studies import delete, lacking, made, path, unit_rows

PARAMS = grid(n=[1, 2])


class Summed:
    """A study of four units, two sums over them and a total. What ran is written down; what is `bad` raises."""

    def __init__(self, app: App) -> None:
        self.ran: list[str] = []
        self.bad: set[str] = set()

        def run(what: str) -> None:
            self.ran.append(what)
            if what in self.bad:
                raise ValueError(f"{what} does not converge")

        def sum_up(params: dict, runs: list) -> dict:
            run(f"sum {params['n']}")
            return {"sum": sum(int(one.read("result")) for one in runs)}

        def total(sets: list[UnitResult], out: Outputs) -> None:
            run("total")
            out.save("total", str(sum(one.json()["sum"] for one in sets)).encode())

        @app.batch(
            name="summed",
            outputs={"result": "result.txt"},
            aggregate=sum_up,
            overall=Aggregate(total, outputs={"total": "total.txt"}),
            retries=0,
            version="1",
        )
        def summed(params: dict, seed: int, out: Outputs) -> None:
            run(f"{params['n']} {seed}")
            out.save("result", str(10 * params["n"] + seed).encode())

        self.batch = summed


@pytest.fixture
def summed(app: App) -> Summed:
    return Summed(app)


async def test_sets_are_summed_up_and_then_everything(summed: Summed, app: App, box: Harness) -> None:
    run = await app.submit_batch(summed.batch, params=PARAMS, seeds=2)
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert json.loads(await run.read("sum_up.json", {"n": 2})) == {"sum": 41}
    assert await run.read("total") == b"62"
    assert (sorted(summed.ran[:4]), sorted(summed.ran[4:6]), summed.ran[6:]) == (
        ["1 0", "1 1", "2 0", "2 1"], ["sum 1", "sum 2"], ["total"]
    )  # fmt: skip
    assert (await run.status()).outputs_there == 7


async def test_an_aggregation_over_incomplete_inputs_is_not_run_and_is_listed(
    summed: Summed, app: App, box: Harness
) -> None:
    summed.bad = {"1 1"}
    run = await app.submit_batch(summed.batch, params=PARAMS, seeds=2)
    await box.drain()

    assert (await run.wait()).status == "partial"
    assert "sum 2" in summed.ran, "what is complete is summed up all the same"
    assert not {"sum 1", "total"} & set(summed.ran)
    assert sorted(one.rpartition("/")[2] for one, _ in await lacking(run)) == [
        "result.txt", "sum_up.json", "total.txt"
    ]  # fmt: skip
    status = await run.status()
    assert {name: (tally.made, tally.idle) for name, tally in status.aggregations.items()} == {
        "sum_up": (1, 1), "total": (0, 1)
    }  # fmt: skip

    summed.bad.clear()
    summed.ran.clear()
    await run.resume()
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert summed.ran == ["1 1", "sum 1", "total"], "in one resume, and nothing that was there"


async def test_an_aggregation_that_raises_makes_the_batch_partial_and_is_all_that_a_resume_runs(
    summed: Summed, app: App, box: Harness
) -> None:
    summed.bad = {"sum 2"}
    run = await app.submit_batch(summed.batch, params=PARAMS, seeds=2)
    await box.drain()

    assert (await run.wait()).status == "partial"
    [row] = [row for row in await unit_rows(app.control, run.id, "sum_up") if row.unit == "sum_up n=2"]
    assert row.error is not None
    assert row.error.message == "sum 2 does not converge"
    assert "total" not in summed.ran

    summed.bad.clear()
    summed.ran.clear()
    await run.resume()
    await box.drain()
    assert ((await run.wait()).status, summed.ran) == ("succeeded", ["sum 2", "total"])


async def test_a_missing_aggregate_is_made_anew_without_running_units_again(
    summed: Summed, app: App, box: Harness, root: Path
) -> None:
    run = await app.submit_batch(summed.batch, params=PARAMS, seeds=2)
    await box.drain()
    [file] = [file for file in root.glob("v1/summed.sum_up/**/sum_up.json") if b"41" in file.read_bytes()]
    delete(file)
    summed.ran.clear()

    resumed = await run.resume()
    await box.drain()

    repair = app.batch_run(resumed.id)
    assert (resumed.how, (await repair.wait()).status) == ("linked", "succeeded")
    assert summed.ran == ["sum 2"], "what was made of it before is intact"
    assert await made(app.control, repair.id) == {}


async def test_an_aggregate_that_is_lost_before_validation_makes_the_batch_partial_and_is_all_that_is_lacking(
    summed: Summed, app: App, box: Harness, root: Path
) -> None:
    summed.bad = {"total"}
    run = await app.submit_batch(summed.batch, params=PARAMS, seeds=2)
    await box.drain()

    assert await path(app.control, run.id) == ["pending", "running", "finalizing", "validating", "partial"]
    assert [one.rpartition("/")[2] for one, _ in await lacking(run)] == ["total.txt"]


async def test_what_an_aggregation_returns_must_be_data(app: App, box: Harness) -> None:
    def strange(params: dict, runs: list) -> object:
        return object()

    @app.batch(name="study", outputs=["a.txt"], aggregate=strange, retries=0)
    def study(params: dict, seed: int, out: Outputs) -> None:
        out.save("a.txt", b"done")

    run = await app.submit_batch(study, params=PARAMS, seeds=1)
    await box.drain()

    rows = await unit_rows(app.control, run.id, "strange")
    assert {row.status for row in rows} == {"failed"}
    assert rows[0].error is not None
    assert "cannot be written as JSON" in rows[0].error.message
    assert (await run.wait()).status == "partial"


async def test_another_aggregation_is_made_of_the_units_that_are_there(app: App, box: Harness, root: Path) -> None:
    """Units are shared by their own code; what is made of them has an address that its own code is part of."""
    ran: list[int] = []

    def study(params: dict, seed: int, out: Outputs) -> None:
        ran.append(seed)
        out.save("a.txt", str(seed).encode())

    def lowest(params: dict, runs: list) -> int:
        return min(int(run.read()) for run in runs)

    def highest(params: dict, runs: list) -> int:
        return max(int(run.read()) for run in runs)

    first = app.batch(name="study", outputs=["a.txt"], aggregate=lowest, version="1")(study)
    await app.submit_batch(first, params=PARAMS, seeds=3)
    await box.drain()
    ran.clear()

    later = App("memory:", outputs=f"file://{root}?sync=off")
    second = later.batch(name="study", outputs=["a.txt"], aggregate=highest, version="1")(study)
    with Harness(later) as again:
        run = await later.submit_batch(second, params=PARAMS, seeds=3)
        await again.drain()
        assert (await run.wait()).status == "succeeded"
        assert await run.read("highest.json", {"n": 1}) == b"2"
    assert ran == []


class Fetches:
    """What is fetched for aggregations: files by name, and the first few of them by an outage."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        self.outages = 0
        real = OutputStore.save_to

        async def save_to(store: OutputStore, unit: Unit, file: str, target: Path) -> Path:
            if self.outages:
                self.outages -= 1
                raise StoreUnavailable("the storage is away")
            self.files.append(file)
            return await real(store, unit, file, target)

        monkeypatch.setattr(OutputStore, "save_to", save_to)


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    return Fetches(monkeypatch)


TWO = {"big": "big.bin", "small": "small.json"}


def writes_two(params: dict, seed: int, out: Outputs) -> None:
    out.save("big", b"x" * 1000)
    out.save("small", str(seed).encode())


async def test_only_what_an_aggregation_asks_for_is_fetched(app: App, box: Harness, fetches: Fetches) -> None:
    paths: list[Path] = []

    def total(sets: list[UnitResult]) -> int:
        paths.extend(one["small"] for one in sets)
        assert all(path.is_file() for path in paths)
        assert "big" in sets[0].files
        return sum(one.json("small") for one in sets)

    study = app.batch(name="study", outputs=TWO, overall=total, retries=0)(writes_two)
    run = await app.submit_batch(study, params=PARAMS, seeds=40)
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert int(await run.read("total.json")) == 2 * sum(range(40))
    assert fetches.files == ["small.json"] * 80
    assert not any(path.exists() for path in paths), "they are gone when it has ended"


async def test_for_an_async_aggregation_everything_is_there(app: App, box: Harness, fetches: Fetches) -> None:
    async def total(sets: list[UnitResult]) -> int:
        return sum(len(one.read("big")) for one in sets)

    study = app.batch(name="study", outputs=TWO, overall=total, retries=0)(writes_two)
    run = await app.submit_batch(study, params=PARAMS, seeds=2)
    await box.drain()

    assert int(await run.read("total.json")) == 4000
    assert sorted(set(fetches.files)) == ["big.bin", "small.json"]


async def test_storage_that_is_away_when_an_input_is_asked_for_is_no_failure(
    app: App, box: Harness, fetches: Fetches
) -> None:
    def total(sets: list[UnitResult]) -> int:
        return len([one.read("small") for one in sets])

    study = app.batch(name="study", outputs=TWO, overall=total, retries=0)(writes_two)
    run = await app.submit_batch(study, params=PARAMS, seeds=2)
    fetches.outages = 2
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    [row] = await unit_rows(app.control, run.id, "total")
    assert (row.status, row.failures, row.releases > 0) == ("succeeded", 0, True)


async def test_what_is_not_json_is_named_with_its_unit(app: App, box: Harness) -> None:
    def total(sets: list[UnitResult]) -> float:
        return sum(one.json("result") for one in sets)

    @app.batch(name="study", outputs={"result": "result.json"}, overall=total, retries=0)
    def study(seed: int, out: Outputs) -> None:
        out.save("result", json.dumps(float("nan") if seed == 1 else 1.0).encode())

    run = await app.submit_batch(study, seeds=2)
    await box.drain()

    [row] = await unit_rows(app.control, run.id, "total")
    assert row.error is not None
    assert "result of unit unit-s1 of study: it is not JSON" in row.error.message
    assert "json.loads(run.read('result'))" in row.error.message
