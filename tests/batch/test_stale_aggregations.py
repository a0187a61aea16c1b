"""Aggregations that do not belong to their inputs: older than these, or by other code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mainstay import Aggregate, App, Outputs, grid
from mainstay.testing import Harness
from tests.batch.studies import unit_rows

FILE = {"result": "result.txt"}


async def test_an_aggregation_is_made_anew_when_one_of_its_inputs_came_out_otherwise(
    app: App, box: Harness, root: Path
) -> None:
    drawn = iter(range(1000))
    summed: list[str] = []

    def total(params: dict, runs: list) -> str:
        summed.append(str(params["n"]))
        return " ".join(each.read().decode() for each in runs)

    def all_of_it(sets: list) -> list:
        summed.append("all")
        return [each.json() for each in sets]

    @app.batch(name="study", outputs=FILE, aggregate=total, overall=all_of_it, version="1")
    def study(params: dict, seed: int, out: Outputs) -> None:
        out.save("result", str(next(drawn)).encode())

    run = await app.submit_batch(study, params=grid(n=[1, 2]), seeds=1)
    await box.drain()
    assert sorted(summed) == ["1", "2", "all"]
    next(root.glob("v1/study/*/n=1*/result.txt")).unlink()
    summed.clear()
    assert (await run.resume()).how == "linked"
    await box.drain()
    result = (await run.read("result", {"n": 1}, 0)).decode()
    assert (await run.read("total.json", {"n": 1})).decode().strip() == f'"{result}"'
    assert sorted(summed) == ["1", "all"]


async def test_an_aggregation_stays_when_its_inputs_came_out_the_same(app: App, box: Harness, root: Path) -> None:
    summed: list[int] = []

    def total(params: dict, runs: list) -> int:
        summed.append(1)
        return len(runs)

    @app.batch(name="study", outputs=FILE, aggregate=total, version="1")
    def study(params: dict, seed: int, out: Outputs) -> None:
        out.save("result", b"same")

    run = await app.submit_batch(study, seeds=2)
    await box.drain()
    next(root.glob("v1/study/**/result.txt")).unlink()
    again = await run.resume()
    await box.drain()
    assert (await app.batch_run(again.id).status()).job.status == "succeeded"
    assert summed == [1]


async def test_an_aggregation_by_another_version_of_its_code_is_refused(root: Path) -> None:
    def app_with(version: str) -> tuple[App, Any]:
        def total(params: dict, runs: list) -> str:
            return version

        app = App("memory:", outputs=f"file://{root}?sync=off")

        @app.batch(name="study", outputs=FILE, aggregate=Aggregate(total, version=version), version="1", retries=0)
        def study(params: dict, seed: int, out: Outputs) -> None:
            out.save("result", b"x")

        return app, study

    app, study = app_with("new")
    other, _ = app_with("old")
    with Harness(app) as box:
        run = await app.submit_batch(study, seeds=2)
        with other.using(box.store):
            box.app = other
            await box.drain()
        box.app = app
        status = await run.status()
        assert status.job.status == "partial"
        (row,) = await unit_rows(app.control, run.id, "total")
        assert row.error is not None
        assert "it was submitted for code" in row.error.message


async def test_a_forced_run_that_is_resumed_sums_up_what_it_made_and_not_what_was_there(app: App, box: Harness) -> None:
    """One unit fails under force, so its set is not summed up anew, and what was made of it before stays until then."""
    drawn = iter(range(1000))
    bad: set[int] = set()

    def total(params: dict, runs: list) -> str:
        return " ".join(each.read().decode() for each in runs)

    @app.batch(name="study", outputs=FILE, aggregate=total, version="1", retries=0)
    def study(params: dict, seed: int, out: Outputs) -> None:
        if seed in bad:
            raise ValueError("not this time")
        out.save("result", str(next(drawn)).encode())

    await app.submit_batch(study, seeds=2)
    await box.drain()
    bad.add(1)
    run = await app.submit_batch(study, seeds=2, force=True)
    await box.drain()
    assert (await run.status()).job.status == "partial"
    bad.clear()

    await run.resume()
    await box.drain()

    assert (await run.status()).job.status == "succeeded"
    results = [(await run.read("result", {}, seed)).decode() for seed in range(2)]
    assert (await run.read("total.json")).decode().strip() == f'"{" ".join(results)}"'
