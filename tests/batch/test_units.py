"""What becomes of single units: tried again, crashed, wrong at the door, without their output."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import time
from pathlib import Path
from typing import TypedDict

import msgspec
import pytest

from mainstay import App, Outputs, context, grid
from mainstay.errors import BadArguments, InvalidInput, UnknownOption
from mainstay.testing import Harness
from tests.app.working import working
from tests.batch.studies import lacking, made, path, unit_rows

FILE = {"result": "result.txt"}


async def test_a_unit_that_fails_is_tried_again_by_its_own_policy(app: App, box: Harness) -> None:
    tries: list[int] = []

    @app.batch(name="study", outputs=FILE, retries=2, backoff_base="1m")
    def study(seed: int, out: Outputs) -> None:
        tries.append(seed)
        if seed == 1 and tries.count(1) < 3:
            raise ValueError("not yet")
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=3)
    drained = await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert sorted(tries) == [0, 1, 1, 1, 2]
    [row] = [row for row in await unit_rows(app.control, run.id) if row.unit == "unit-s1"]
    assert (row.status, row.failures) == ("succeeded", 2)
    assert drained.took.total_seconds() > 60, "it waited between its tries"


async def test_a_unit_that_ends_without_writing_its_output_has_failed_and_says_which(app: App, box: Harness) -> None:
    @app.batch(name="study", outputs={"a": "a.txt", "b": "b.txt"}, retries=0)
    def study(seed: int, out: Outputs) -> None:
        out.save("a", b"done")
        if seed == 0:
            out.save("b", b"done")

    run = await app.submit_batch(study, seeds=2)
    await box.drain()

    [row] = [row for row in await unit_rows(app.control, run.id) if row.unit == "unit-s1"]
    assert (row.status, row.error and row.error.code) == ("failed", "output_missing")
    assert row.error is not None
    assert "without writing it" in row.error.message
    assert (await run.wait()).status == "partial"
    assert [one.rpartition("/")[2] for one, _ in await lacking(run)] == ["a.txt", "b.txt"], "all of a unit or nothing"


async def test_async_units_are_run(app: App, box: Harness) -> None:
    @app.batch(name="study", outputs=FILE)
    async def study(params: dict, seed: int, out: Outputs) -> None:
        context().progress(1, 1)
        out.save("result", f"{params['n']} {seed}".encode())

    run = await app.submit_batch(study, params=grid(n=[1, 2]), seeds=2)
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert await run.read("result", {"n": 2}, 1) == b"2 1"


async def test_a_study_may_have_no_seeds_or_no_parameters(app: App, box: Harness) -> None:
    @app.batch(name="once", outputs=FILE)
    def once(params: dict, out: Outputs) -> None:
        out.save("result", str(params["n"]).encode())

    run = await app.submit_batch(once, params=grid(n=[1, 2]))
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert await run.read("result", {"n": 2}) == b"2"


# -- in a process ----------------------------------------------------------------------------------------------------

#: what the children of a test import
processes = App("memory:", outputs=f"file://{os.environ.get('BATCH_TEST_ROOT', '/nowhere')}?sync=off")


@processes.batch(name="in_process", outputs=FILE, process=True, retries=0, crash_budget=2)
def in_process(params: dict, seed: int, out: Outputs) -> None:
    if params["deadly"] == seed:
        os.kill(os.getpid(), signal.SIGKILL)
    out.save("result", str(os.getpid()).encode())


@pytest.fixture
def in_children(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the program of the children is called; they keep outputs where this test does."""
    monkeypatch.setenv("BATCH_TEST_ROOT", str(root))
    return "tests.batch.test_units:processes"


@pytest.mark.slow
async def test_units_run_in_processes_of_their_own_and_one_that_kills_its_process_spends_its_crash_budget(
    in_children: str, root: Path
) -> None:
    with Harness(processes, processes=in_children, concurrency=2, patience="60s") as box:
        url = f"file://{root}?sync=off"
        run = await processes.submit_batch(in_process, params=grid(deadly=[1]), seeds=3, outputs=url)
        await box.drain()

        assert (await run.wait()).status == "partial"
        rows = {row.unit: row for row in await unit_rows(processes.control, run.id)}
        deadly = rows["deadly=1-s1"]
        assert (deadly.status, deadly.crashes) == ("failed", 2)
        assert {rows[f"deadly=1-s{seed}"].status for seed in (0, 2)} == {"succeeded"}
        assert int(await run.read("result", {"deadly": 1}, 0)) != os.getpid()
        assert [one.rpartition("/")[2] for one, _ in await lacking(run)] == ["result.txt"]


def draws(seed: int) -> str:
    """By the generator of the whole process, as many programs do it, with a pause for others in between."""
    random.seed(seed)
    drawn = []
    for _ in range(50):
        drawn.append(random.random())
        time.sleep(0)
    return repr(sum(drawn))


@processes.batch(name="seeded", outputs=FILE, retries=0)
def seeded(seed: int, out: Outputs) -> None:
    out.save("result", f"{os.getpid()} {draws(seed)}".encode())


@pytest.mark.slow
async def test_by_default_units_that_seed_the_generator_of_their_process_do_not_disturb_each_other(
    in_children: str, root: Path
) -> None:
    with Harness(processes, processes=in_children, concurrency=3, patience="60s") as box:
        run = await processes.submit_batch(seeded, seeds=12, outputs=f"file://{root}?sync=off")
        await box.drain()

        assert (await run.wait()).status == "succeeded"
        found = [(await run.read("result", {}, seed)).decode().split() for seed in range(12)]
    assert str(os.getpid()) not in {pid for pid, _ in found}
    assert [drawn for _, drawn in found] == [draws(seed) for seed in range(12)]


async def test_in_a_test_without_processes_they_run_one_at_a_time(app: App, box: Harness) -> None:
    @app.batch(name="study", outputs=FILE, retries=0)
    def study(seed: int, out: Outputs) -> None:
        out.save("result", draws(seed).encode())

    run = await app.submit_batch(study, seeds=12)
    await box.drain()

    found = [(await run.read("result", {}, seed)).decode() for seed in range(12)]
    assert found == [draws(seed) for seed in range(12)]


@pytest.mark.parametrize(
    ("process", "plain", "awaited"),
    [(None, "process", "loop"), (True, "process", "process"), (False, "thread", "loop")],
)
def test_where_units_run_follows_from_their_kind_unless_it_is_said(
    app: App, process: bool | None, plain: str, awaited: str
) -> None:
    async def total(sets: list) -> int:
        return len(sets)

    def score(params: dict, runs: list) -> int:
        return len(runs)

    @app.batch(name="study", outputs=FILE, aggregate=score, overall=total, process=process)
    def study(seed: int, out: Outputs) -> None: ...

    @app.batch(name="awaited", outputs=FILE, process=process)
    async def coroutine(seed: int, out: Outputs) -> None: ...

    def mode(name: str) -> str:
        return app.work("batch", name).mode

    assert (mode("study:unit"), mode("study:score"), mode("study:total")) == (plain, plain, awaited)
    assert mode("awaited:unit") == awaited
    with pytest.raises(InvalidInput, match="neither True nor False"):
        app.batch(name="other", outputs=FILE, process="yes")(lambda out: None)  # type: ignore[call-overload]


# -- at the door -----------------------------------------------------------------------------------------------------


class Wave(msgspec.Struct, frozen=True):
    height: float = 1.0


class Sea(msgspec.Struct, frozen=True):
    gamma: float = 0.1
    waves: list[Wave] = []
    first: Wave | None = None
    notes: dict[str, int] = {}


class SeaNotes(TypedDict, total=False):
    gamma: float


@dataclasses.dataclass(frozen=True)
class PlainSea:
    gamma: float = 0.1


@pytest.mark.parametrize("kind", [Sea, PlainSea, SeaNotes])
async def test_a_misspelt_parameter_of_a_declared_type_is_refused_with_the_name_that_is_near(
    app: App, kind: type
) -> None:
    def study(params, out):  # type: ignore[no-untyped-def] # its annotations differ from case to case
        out.save("result", b"done")

    study.__annotations__ = {"params": kind, "out": Outputs}
    batch = app.batch(name="study", outputs=FILE)(study)

    with pytest.raises(InvalidInput, match=r"study.params.gama: .*did you mean 'gamma'"):
        await app.submit_batch(batch, params=grid(gama=[0.1, 0.2]))
    assert (await app.submit_batch(batch, params=grid(gamma=[0.1, 0.2]))).created


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"waves": [{"height": 1}, {"hight": 2}]}, r"waves\[1\].hight"),
        ({"first": {"heigth": 1}}, "first.heigth"),
    ],
)
async def test_a_misspelt_name_is_found_at_any_depth(app: App, params: dict[str, object], path: str) -> None:
    @app.batch(name="study", outputs=FILE)
    def study(params: Sea, out: Outputs) -> None: ...

    with pytest.raises(InvalidInput, match=f"study.params.{path}: .*did you mean 'height'"):
        await app.submit_batch(study, params=[params])
    assert (await app.submit_batch(study, params=[{"first": {"height": 2}, "notes": {"any": 1}}])).created


async def test_sets_for_a_study_that_takes_no_parameters_are_refused(app: App) -> None:
    @app.batch(name="study", outputs=FILE)
    def study(seed: int, out: Outputs) -> None: ...

    with pytest.raises(InvalidInput, match="takes no `params`, so every set would give the same outputs"):
        await app.submit_batch(study, params=grid(beta=[1, 2]), seeds=1)


class Params(msgspec.Struct, frozen=True):
    beta: float
    days: int = 10


@dataclasses.dataclass(frozen=True)
class Plain:
    beta: float
    days: int = 10


@pytest.mark.parametrize("kind", [Params, Plain])
async def test_parameters_arrive_as_the_type_that_the_study_declares(
    app: App, box: Harness, kind: type[Params | Plain]
) -> None:
    seen: list[object] = []

    def study(params, out) -> None:  # type: ignore[no-untyped-def]
        seen.append(params)
        out.save("result", b"done")

    study.__annotations__ = {"params": kind, "out": Outputs}
    batch = app.batch(name="study", outputs=FILE, version="1")(study)

    run = await app.submit_batch(batch, params=[kind(0.3), {"beta": 0.4, "days": 5}])
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert {*seen} == {kind(0.3), kind(0.4, 5)}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ([{"beta": "much"}], "Expected `float`"),
        ([{"days": 3}], "beta"),
        ([{"beta": 0.3}, {"beta": 0.3}], "are duplicates"),
        ([], "at least one"),
        ({"beta": 0.3}, "not a list of parameter sets"),
        ([0.3], "not a mapping"),
    ],
)
async def test_parameters_that_do_not_fit_are_refused_at_the_door_and_nothing_is_left_behind(
    app: App, box: Harness, root: Path, params: object, said: str
) -> None:
    @app.batch(name="study", outputs=FILE)
    def study(params: Params, out: Outputs) -> None:
        out.save("result", b"done")

    with pytest.raises((BadArguments, InvalidInput), match=said):
        await app.submit_batch(study, params=params)  # type: ignore[arg-type]

    assert box.submitted() == []
    assert list(root.glob("v1/_manifests/*")) == []


async def test_seeds_and_options_that_make_no_sense_are_refused_at_the_door(app: App, box: Harness) -> None:
    @app.batch(name="seeded", outputs=FILE)
    def seeded(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    @app.batch(name="once", outputs=FILE)
    def once(out: Outputs) -> None:
        out.save("result", b"done")

    with pytest.raises(InvalidInput, match="takes a `seed`"):
        await app.submit_batch(seeded)
    with pytest.raises(InvalidInput, match="takes no `seed`"):
        await app.submit_batch(once, seeds=3)
    with pytest.raises(InvalidInput, match="contains a duplicate"):
        await app.submit_batch(seeded, seeds=[1, 1])
    with pytest.raises(InvalidInput, match="belongs to each unit"):
        await app.submit_batch(seeded, seeds=1, retries=3)
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        await app.submit_batch(seeded, seeds=1, failure_budget=10)
    assert box.submitted() == []


def test_a_study_that_could_not_work_is_refused_where_it_is_declared(app: App) -> None:
    with pytest.raises(InvalidInput, match="it must take `out`"):

        @app.batch(name="silent", outputs=FILE)
        def silent(params: dict) -> None: ...

    with pytest.raises(InvalidInput, match="declares none"):

        @app.batch(name="nothing")
        def nothing(out: Outputs) -> None: ...

    with pytest.raises(UnknownOption, match="aggregate"):

        @app.batch(name="misspelt", outputs=FILE, agregate=print)  # type: ignore[call-arg]
        def misspelt(out: Outputs) -> None: ...

    assert dict(app.batches) == {}


# -- another version of the code -------------------------------------------------------------------------------------


async def test_units_that_were_submitted_for_another_version_of_the_code_are_refused_with_advice(
    tmp_path: Path, root: Path
) -> None:
    ran: list[str] = []

    def program(version: str) -> App:
        app = App(f"sqlite:///{tmp_path}/jobs.db", outputs=f"file://{root}?sync=off")

        @app.batch(name="study", outputs=FILE, version=version, retries=3)
        def study(seed: int, out: Outputs) -> None:
            ran.append(version)
            out.save("result", version.encode())

        return app

    old, new = program("1"), program("2")
    async with old, new:
        run = await old.submit_batch(old.batches["study"], seeds=2)
        async with working(new):
            job = await new.batch_run(run.id).wait("60s")
        rows = await unit_rows(new.control, run.id)

        assert (job.status, ran) == ("failed", [])
        assert {(row.status, row.failures) for row in rows} == {("failed", 1)}, "trying again would not help"
        assert rows[0].error is not None
        assert "submitted for code 1 of study, and this worker has 2" in rows[0].error.message

        await run.resume(reason="with the right code")
        async with working(old):
            job = await run.wait("60s")
        assert (job.status, ran) == ("succeeded", ["1", "1"])


# -- together --------------------------------------------------------------------------------------------------------


async def test_a_failure_budget_stops_a_batch_early_and_leaves_the_rest_unrun(root: Path) -> None:
    app = App("memory:", outputs=f"file://{root}?sync=off", claim_batch=1)
    box = Harness(app, concurrency=1)
    ran: list[int] = []

    @app.batch(name="study", outputs=FILE, retries=0, failure_budget=0.1)
    def study(seed: int, out: Outputs) -> None:
        ran.append(seed)
        box.advance("5s")
        raise ValueError("never converges")

    with box:
        run = await app.submit_batch(study, seeds=50)
        await box.drain()

        job = await run.wait()
        assert job.status == "failed"
        assert job.error is not None
        assert job.error.code == "failure_budget"
        assert "failure budget is 10%; stopped early" in (job.reason or "")
        assert 5 < len(ran) < 30, "it is noticed soon, not at once"
        rows = await unit_rows(app.control, run.id)
        assert {row.status for row in rows if row.failures == 0} == {"cancelled"}
        assert len(rows) == 50


async def test_failures_within_the_budget_do_not_stop_a_batch(app: App, box: Harness) -> None:
    @app.batch(name="study", outputs=FILE, retries=0, failure_budget=0.1)
    def study(seed: int, out: Outputs) -> None:
        if seed == 3:
            raise ValueError("this one")
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=10)
    await box.drain()

    assert (await run.wait()).status == "partial"
    assert sum((await made(app.control, run.id)).values()) == 10


async def test_a_deadline_ends_a_batch_whose_units_are_not_done_and_a_resume_goes_on(app: App, box: Harness) -> None:
    ran: list[int] = []
    converges: list[bool] = []

    @app.batch(name="study", outputs=FILE, retries=1, backoff_base="1h")
    def study(seed: int, out: Outputs) -> None:
        ran.append(seed)
        if seed == 1 and not converges:
            raise ValueError("try in an hour")
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=3, deadline="5m")
    await box.drain(until="10m")

    job = await run.wait()
    assert job.error is not None
    assert job.error.code == "run_timeout"
    assert await path(app.control, run.id) == ["pending", "running", "timed_out"]
    assert job.settled_ms is not None
    assert 300_000 <= job.settled_ms - job.created_ms < 302_000, "no grace: its driver keeps no limit of its own"
    assert {row.status for row in await unit_rows(app.control, run.id) if row.unit == "unit-s1"} == {"cancelled"}

    ran.clear()
    converges.append(True)
    await run.resume()
    await box.drain()
    assert ((await run.wait()).status, ran) == ("succeeded", [1])


async def test_looking_at_the_outputs_does_not_count_against_the_deadline(app: App, box: Harness, root: Path) -> None:
    @app.batch(name="study", outputs=FILE)
    def study(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=2, deadline="5m")
    await box.drain(until="0s")
    aside = root.rename(root.with_name("aside"))
    root.write_text("no folder: nobody can say what is there")
    await box.drain(until="1h")
    away = await run.status()
    root.unlink()
    aside.rename(root)
    await box.drain()

    assert away.job.status == "validating"
    assert (await run.wait()).status == "succeeded"
