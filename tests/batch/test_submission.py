"""What a submit makes of a study's options and of its own."""

from __future__ import annotations

import numbers
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay import App, Batch, Outputs, grid
from mainstay.errors import InvalidInput, PayloadTooLarge
from mainstay.testing import Harness
from tests.batch.studies import unit_rows

FILE = {"result": "result.txt"}


def declared(app: App, **options: Any) -> Batch:
    @app.batch(name="study", outputs=FILE, version="1", **options)
    def study(params: dict, seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    return study


async def test_a_batch_has_the_priority_and_the_tags_of_its_study_and_its_driver_comes_before_the_units(
    app: App, box: Harness
) -> None:
    study = declared(app, priority=5, tags=["thesis"])
    run = await app.submit_batch(study, seeds=2, tags=["draft"])
    await box.drain()

    job = (await run.status()).job
    assert (job.priority, sorted(job.options.tags)) == (5, ["draft", "thesis"])
    assert {row.priority for row in await unit_rows(app.control, run.id)} == {5}
    assert [row.priority for row in await unit_rows(app.control, run.id, "driver")] == [6]


async def test_a_stall_timeout_for_all_jobs_does_not_end_a_batch_whose_units_are_at_work(root: Path) -> None:
    app = App("memory:", outputs=f"file://{root}?sync=off", stall_timeout="1m")
    study = declared(app)
    with Harness(app) as box:
        run = await app.submit_batch(study, seeds=2)
        job = await app.control.jobs.get(run.id)
        assert job.options.stall_timeout_s is None
        await box.drain()
        assert (await run.status()).job.status == "succeeded"


@pytest.mark.parametrize("name", ["retries", "timeout", "stall_timeout", "concurrency_key"])
async def test_what_is_about_each_unit_cannot_be_said_of_a_submit(app: App, box: Harness, name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"write @app.batch\({name}=...\)"):
        await app.submit_batch(declared(app), seeds=2, **{name: "1m"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["unique", "on_clash", "queue_deadline"])
def test_what_is_about_one_submit_cannot_be_said_of_a_study(app: App, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"write app.submit_batch"):
        declared(app, **{name: "return"})


async def test_the_same_work_for_another_place_is_another_job_however_long_the_places_are_named(
    app: App, box: Harness, tmp_path: Path
) -> None:
    study = declared(app)
    deep = tmp_path / ("long" * 50)
    runs = [await app.submit_batch(study, seeds=2, outputs=f"file://{deep}{end}?sync=off") for end in "ab"]

    assert [run.created for run in runs] == [True, True]
    keys = [str((await app.control.jobs.get(run.id)).unique_key) for run in runs]
    assert not any("file:" in key for key in keys), "a URL may hold a password, and keys are shown in messages"


class Whole:
    """A whole number as NumPy has them: none of Python's."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value

    __index__ = __int__


class Real(float):
    """A number as NumPy has them: one of Python's, and a kind of its own."""


numbers.Integral.register(Whole)


async def test_numbers_of_other_kinds_are_the_numbers_they_stand_for(app: App, box: Harness) -> None:
    def count(params: dict, runs: list) -> int:
        return len(runs)

    study = declared(app, aggregate=count)
    seeds: Any = [Whole(0), Whole(1)]
    theirs = await app.submit_batch(study, params=grid(beta=[Real(0.5)], n=[Whole(3)]), seeds=seeds)
    ours = await app.submit_batch(study, params=grid(beta=[0.5], n=[3]), seeds=2)

    assert ours.id == theirs.id
    with pytest.raises(InvalidInput, match=r"params\[0\]: cannot be stored as data: a object is neither a number"):
        await app.submit_batch(study, params=[{"beta": object()}], seeds=1)
    with pytest.raises(InvalidInput, match="contains a value that is not a whole number"):
        await app.submit_batch(study, seeds=[0.5])  # type: ignore[list-item]


class Rates(msgspec.Struct):
    beta: float
    gamma: float = 0.5


async def test_the_same_parameters_are_the_same_work_however_they_are_written(app: App, box: Harness) -> None:
    @app.batch(name="rates", outputs=["result.txt"], version="1")
    def rates(params: Rates, out: Outputs) -> None:
        out.save("result.txt", f"{params.beta} {params.gamma}".encode())

    typed = await app.submit_batch(rates, params=[Rates(1.0), Rates(2.0)])
    plain = await app.submit_batch(rates, params=[{"beta": 1}, {"beta": 2, "gamma": 0.5}])
    assert plain.id == typed.id
    await box.drain()
    assert await typed.read("result.txt", {"beta": 2, "gamma": 0.5}) == b"2.0 0.5"
    assert await typed.read("result.txt", Rates(1.0)) == b"1.0 0.5"


async def test_units_that_differ_in_what_a_path_cannot_hold_have_labels_that_differ(app: App, box: Harness) -> None:
    cities = ["北京", "東京", "Zürich", "x" * 80, "x" * 81, "a\nb", "a\tb"]

    @app.batch(name="study", outputs={"result": "result.txt"}, version="1", retries=0)
    def study(params: dict[str, str], out: Outputs) -> None:
        raise ValueError("no")

    run = await app.submit_batch(study, params=[{"city": city} for city in cities])
    await box.drain()

    labels = [row.unit or "" for row in await unit_rows(app.control, run.id)]
    assert len(set(labels)) == len(cities)
    assert {"city=北京", "city=東京", "city=Zürich"} <= set(labels)
    assert all(label.isprintable() and len(label) <= 60 for label in labels)
    validation = await run.validate()
    assert {one.unit for one in validation.first} == set(labels)


class Cities(msgspec.Struct):
    names: set[str]


async def test_a_set_among_parameters_has_one_order_in_every_process(app: App) -> None:
    @app.batch(name="typed", outputs=["a.txt"])
    def typed(params: Cities, out: Outputs) -> None: ...

    @app.batch(name="untyped", outputs=["a.txt"])
    def untyped(params: dict, out: Outputs) -> None: ...

    names = {f"city {n}" for n in range(50)}
    for study in (typed, untyped):
        run = await app.submit_batch(study, params=[{"names": names}])
        (one,) = (await run._service().manifest(run.id)).groups[0].params
        assert one["names"] == sorted(names)
    with pytest.raises(InvalidInput, match=r"params\[0\]: cannot be stored as data"):
        await app.submit_batch(untyped, params=[{"names": {1, "a"}}])


async def test_parameters_that_no_unit_could_carry_are_refused_at_submit(app: App) -> None:
    @app.batch(name="study", outputs=["a.txt"])
    def study(params: dict, out: Outputs) -> None: ...

    with pytest.raises(PayloadTooLarge, match=r"params\[1\]: .* does not fit into the payload limit"):
        await app.submit_batch(study, params=[{"data": "small"}, {"data": "x" * (1 << 20)}])
