"""Two who do the same at once, and orders that come at the worst moment."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from mainstay import App, BatchRun, Outputs, grid
from mainstay.batch import ResumeOutcome
from mainstay.control import Control
from mainstay.errors import InvalidTransition
from mainstay.testing import Harness
from tests.app.working import working
from tests.batch.studies import all_rows, delete, meddling, outputs_of, path, places_made, unit_rows
from tests.conformance.adapters import ADAPTERS, Adapter

FILE = {"result": "result.txt"}
#: those that others can open at the same time; a bucket has a test of its own
STORES = [adapter for adapter in ADAPTERS if adapter.name in ("sqlite", "postgres", "redis", "registry")]


class Program:
    """An app on a real store. Seeds that are `bad` fail; what ran is written down."""

    def __init__(self, url: str, root: Path) -> None:
        self.app = App(url, outputs=f"file://{root}?sync=off", poll="200ms")
        self.bad: set[int] = set()
        self.ran: list[int] = []

        def count(params: dict, runs: list) -> int:
            return len(runs)

        @self.app.batch(name="study", outputs=FILE, aggregate=count, retries=0, version="1")
        def study(params: dict, seed: int, out: Outputs) -> None:
            self.ran.append(seed)
            if seed in self.bad:
                raise ValueError("this seed does not converge")
            out.save("result", b"done")

        self.study = study

    async def submit(self) -> BatchRun:
        return await self.app.submit_batch(self.study, params=grid(n=[1]), seeds=10)


@pytest.fixture(params=STORES, ids=lambda adapter: adapter.name)
def program(request: pytest.FixtureRequest, tmp_path: Path, root: Path) -> Program:
    adapter: Adapter = request.param
    return Program(adapter.at(tmp_path), root)


async def both(run: BatchRun) -> list[ResumeOutcome | BaseException]:
    return [*await asyncio.gather(run.resume(), run.resume(), return_exceptions=True)]


async def test_of_two_resumes_at_once_one_wins_and_a_linked_repair_is_made_once(program: Program, root: Path) -> None:
    """On every store: partial, resumed in place by one of two; then damaged after success, and repaired by one job."""
    program.bad = {3, 7}
    async with program.app, working(program.app):
        run = await program.submit()
        assert (await run.wait("60s")).status == "partial"
        program.bad.clear()
        program.ran.clear()

        found = await both(run)
        job = await run.wait("60s")

        assert Counter(type(one) for one in found) == {InvalidTransition: 1, ResumeOutcome: 1}, found
        assert (job.status, sorted(program.ran)) == ("succeeded", [3, 7])

        files = sorted(root.glob("v1/study/**/result.txt"))
        delete(files[2])
        delete(files[5])
        program.ran.clear()

        found = await both(run)
        repairs = {one.id for one in found if isinstance(one, ResumeOutcome)}
        [repair] = [program.app.batch_run(one) for one in repairs]

        assert [one.how for one in found if isinstance(one, ResumeOutcome)] == ["linked", "linked"]
        assert (await repair.wait("60s")).status == "succeeded"
        assert len(program.ran) == 2
        counts = await places_made(program.app.control, repair.id)
        assert len(counts) == 2
        assert set(counts.values()) == {1}


async def test_the_same_work_that_two_submit_at_once_is_one_job(program: Program, root: Path) -> None:
    async with program.app:
        runs = await asyncio.gather(*(program.submit() for _ in range(4)))
        async with working(program.app):
            job = await runs[0].wait("60s")

    assert len({run.id for run in runs}) == 1
    assert Counter(run.created for run in runs) == {True: 1, False: 3}
    assert (job.status, sorted(program.ran)) == ("succeeded", list(range(10)))
    assert [file.name for file in root.glob("v1/_manifests/*")] == [f"{job.id}.json.gz"]


async def test_of_two_validators_at_once_one_moves_the_batch_and_both_tell_the_same(
    program: Program, root: Path
) -> None:
    program.bad = {3}
    async with program.app:
        async with working(program.app):
            run = await program.submit()
            assert (await run.wait("60s")).status == "partial"
        control = program.app.control
        [unit] = [row for row in await unit_rows(control, run.id) if row.status == "failed"]
        service = run._service()
        store, manifest = await service.store(run.id), await service.manifest(run.id)
        for group in manifest.groups:
            for one in group.units():
                await store.publish(one, dict.fromkeys(group.outputs.values(), b"by hand"))

        found = await asyncio.gather(*(run.validate(force=True) for _ in range(4)))

        assert unit.unit == "n=1-s3"
        assert {one.verdict for one in found} == {"succeeded"}
        assert (await path(control, run.id)).count("succeeded") == 1
        assert (await run.wait()).status == "succeeded"


async def test_a_validator_and_the_driver_that_look_at_once_end_a_batch_once(app: App, box: Harness) -> None:
    """Somebody validates by hand in the very moment in which the driver looks at the outputs."""

    @app.batch(name="study", outputs=FILE, retries=0)
    def study(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=3)
    await box.drain(until="0s")

    async def by_hand() -> None:
        assert (await run.validate()).verdict == "succeeded"

    async with meddling(app, run, find=by_hand):
        await box.drain()

    assert await path(app.control, run.id) == ["pending", "running", "finalizing", "validating", "succeeded"]
    assert {row.status for row in await all_rows(app.control, run.id)} == {"succeeded"}, "the driver ends well"


async def test_a_batch_that_is_resumed_while_somebody_looks_at_it_goes_on(app: App, box: Harness) -> None:
    """What was found is out of date by then: it moves nothing."""
    study, ran = counting(app)
    run = await app.submit_batch(study, seeds=3)
    await box.drain(until="0s")
    store = await outputs_of(app, run)
    for unit in (await run._service().manifest(run.id)).groups[0].units():
        if unit.seed:
            await store.remove(unit)
    await box.drain()
    ran.clear()

    async with meddling(app, run, find=run.resume):
        with pytest.raises(InvalidTransition, match="still running"):
            await run.validate(force=True)
    await box.drain()

    assert ((await run.wait()).status, sorted(ran)) == ("succeeded", [1, 2])


async def test_a_batch_that_is_resumed_before_its_units_have_stopped_runs_each_once_more_at_most(app: App) -> None:
    """Its deadline passes while a unit hangs; whoever resumes it does not wait for that to end."""
    tries: list[int] = []

    @app.batch(name="study", outputs=FILE, version="1", retries=0, timeout="10h")
    async def study(seed: int, out: Outputs) -> None:
        tries.append(seed)
        if seed == 1 and tries.count(1) == 1:
            await asyncio.Event().wait()
        out.save("result", b"done")

    async with app, working(app):
        sweeper = Control(app.control.store, settings=app.settings, rng=random.Random(1))
        run = await app.submit_batch(study, seeds=3, deadline="2s")
        while not (ended := await app.control.jobs.get(run.id)).settled_ms:
            await sweeper.sweeper.sweep()
            await asyncio.sleep(0.01)
        await run.resume()
        job = await run.wait("60s")

        assert (ended.status, ended.error and ended.error.code) == ("timed_out", "run_timeout")
        assert job.status == "succeeded"
        assert sorted(tries) == [0, 1, 1, 2]
        rows = [row.status for row in await unit_rows(app.control, run.id) if row.unit == "unit-s1"]
        assert sorted(rows) == ["cancelled", "succeeded"]


async def test_what_waits_for_a_batch_runs_when_its_outputs_are_there_and_is_skipped_when_some_are_not(
    app: App, box: Harness
) -> None:
    bad = [True]
    told: list[str] = []

    @app.batch(name="study", outputs=FILE, version="1", retries=0)
    def study(seed: int, out: Outputs) -> None:
        if bad and seed:
            raise ValueError("not yet")
        out.save("result", b"done")

    @app.task(name="tell")
    async def tell() -> None:
        told.append("done")

    run = await app.submit_batch(study, seeds=2)
    first = await tell.options(after=[run.id]).submit()
    await box.drain()
    skipped = await first.status(), (await run.wait()).status, list(told)
    bad.clear()
    await run.resume()
    second = await tell.options(after=[run.id]).submit()
    await box.drain()

    assert skipped == ("skipped", "partial", [])
    assert (await second.status(), (await run.wait()).status, told) == ("succeeded", "succeeded", ["done"])


# -- cancel ----------------------------------------------------------------------------------------------------------


async def test_a_batch_that_is_cancelled_before_it_began_runs_nothing(app: App, box: Harness) -> None:
    study, ran = counting(app)
    run = await app.submit_batch(study, seeds=3)

    await run.cancel()
    await box.drain()

    assert ((await run.wait()).status, ran) == ("cancelled", [])


async def test_a_batch_that_is_cancelled_while_it_is_planned_runs_nothing(app: App, box: Harness) -> None:
    study, ran = counting(app)
    run = await app.submit_batch(study, seeds=3)

    async with meddling(app, run, find=run.cancel):
        await box.drain()

    assert ((await run.wait()).status, ran) == ("cancelled", [])
    assert await none_is_open(app, run)


async def test_a_batch_that_is_cancelled_while_units_run_ends_them_all(app: App) -> None:
    study, ran = counting(app)
    seeds = 400  # more than a worker claims ahead: those that it holds by then may run
    with Harness(app, concurrency=1) as box:
        run = await app.submit_batch(study, seeds=seeds)
        async with meddling(app, run, write=run.cancel):
            await box.drain()

        assert (await run.wait()).status == "cancelled"
        assert len(ran) < seeds
        assert await none_is_open(app, run)
        counts = Counter(row.status for row in await unit_rows(app.control, run.id))
        assert counts["cancelled"] == seeds - counts["succeeded"]
        with pytest.raises(InvalidTransition, match="submit it again"):
            await run.resume()


async def test_a_batch_that_is_cancelled_while_it_is_summed_up_keeps_what_its_units_made(
    app: App, box: Harness
) -> None:
    runs: list[BatchRun] = []

    async def sum_up(params: dict, runs_: list | None = None) -> dict:
        await runs[0].cancel()
        return {}

    study, ran = counting(app, aggregate=sum_up)
    runs.append(await app.submit_batch(study, seeds=3))
    await box.drain()

    assert await path(app.control, runs[0].id) == ["pending", "running", "finalizing", "cancelling", "cancelled"]
    assert await none_is_open(app, runs[0])
    ran.clear()
    again = await app.submit_batch(study, seeds=3)
    await box.drain(until="0s")
    assert ((await again.status()).units.there, ran) == (3, [])


async def test_a_batch_that_is_cancelled_while_it_is_validated_is_cancelled(app: App, box: Harness) -> None:
    study, _ = counting(app)
    run = await app.submit_batch(study, seeds=3)
    await box.drain(until="0s")

    async with meddling(app, run, find=run.cancel):
        await box.drain()

    assert await path(app.control, run.id) == [
        "pending", "running", "finalizing", "validating", "cancelling", "cancelled"
    ]  # fmt: skip
    assert await none_is_open(app, run)


async def test_a_batch_whose_storage_is_away_is_cancelled_at_once(app: App, box: Harness, root: Path) -> None:
    study, _ = counting(app)
    run = await app.submit_batch(study, seeds=3)
    await box.drain(until="0s")
    aside = root.rename(root.with_name("aside"))
    root.write_text("no folder: nobody can say what is there")
    await box.drain(until="1m")
    before = (await run.status()).job.status

    await run.cancel()
    await box.drain(until="0s")

    assert (before, (await run.wait()).status) == ("validating", "cancelled")
    assert aside.exists()


def counting(app: App, **options: object) -> tuple:
    ran: list[int] = []

    @app.batch(name="study", outputs=FILE, version="1", retries=0, **options)  # type: ignore[arg-type]
    def study(seed: int, out: Outputs) -> None:
        ran.append(seed)
        out.save("result", b"done")

    return study, ran


async def none_is_open(app: App, run: BatchRun) -> bool:
    return not [row for row in await all_rows(app.control, run.id) if row.status in ("pending", "running")]
