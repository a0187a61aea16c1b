"""The failure table: for each row what is noticed, what becomes of the batch, and what mends it."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainstay import App, Batch, BatchRun, Outputs, grid
from mainstay.batch import unit_handler
from mainstay.errors import InvalidTransition, StoreDenied, StoreError, StoreFull
from mainstay.outputs import Unit, output_path
from mainstay.testing import Harness
from tests.batch.studies import (
    DAMAGES,
    damage,
    delete,
    flip_a_bit,
    lacking,
    made,
    meddling,
    outputs_of,
    path,
    truncate,
    unit_rows,
)
from tests.outputs.legacy import write_legacy

PARAMS = grid(beta=[0.2, 0.3])


class Study:
    """Writes down what it runs. Units whose seed is among `bad` fail."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: list[tuple[float, int]] = []
        self.bad: set[int] = set()

        def score(params: dict, runs: list) -> dict:
            return {"n": len(runs)}

        @app.batch(name="study", outputs={"result": "result.txt"}, aggregate=score, retries=0, version="1")
        def study(params: dict, seed: int, out: Outputs) -> None:
            self.ran.append((params["beta"], seed))
            if seed in self.bad:
                raise ValueError("this seed does not converge")
            out.save("result", f"result of {params['beta']} {seed}".encode())

        @app.batch(name="plain", outputs={"result": "result.txt"}, retries=0, version="1")
        def plain(params: dict, seed: int, out: Outputs) -> None:
            study(params, seed, out)

        self.batch: Batch = study
        self.plain: Batch = plain

    def unit(self, beta: float, seed: int) -> Unit:
        return Unit("study", "1", {"beta": beta}, seed)

    def path(self, beta: float, seed: int) -> str:
        return output_path(self.unit(beta, seed), "result.txt")

    async def submit(self, *, batch: Batch | None = None, seeds: int = 3) -> BatchRun:
        return await self.app.submit_batch(batch or self.batch, params=PARAMS, seeds=seeds)


@pytest.fixture
def study(app: App) -> Study:
    return Study(app)


# -- succeeded, no outputs: failed -----------------------------------------------------------------------------------


async def test_units_that_all_succeeded_and_left_no_output_make_a_failed_batch(
    study: Study, box: Harness, root: Path
) -> None:
    run = await study.submit(batch=study.plain)
    await box.drain(until="0s")
    assert (await run.status()).units.succeeded == 6
    for file in root.glob("v1/plain/**/result.txt"):
        delete(file)

    await box.drain()

    status = await run.status()
    assert (status.job.status, status.job.reason) == ("failed", "0 of 6 outputs are present, 6 missing")
    assert await path(box.app.control, run.id) == ["pending", "running", "finalizing", "validating", "failed"]


async def test_a_batch_whose_units_all_fail_is_failed_and_can_be_resumed(study: Study, box: Harness) -> None:
    study.bad = {0, 1, 2}
    run = await study.submit()
    await box.drain()
    failed = await run.wait()

    study.bad.clear()
    await run.resume()
    await box.drain()

    assert failed.status == "failed"
    assert (await run.wait()).status == "succeeded"
    assert Counter(study.ran) == dict.fromkeys([(beta, seed) for beta in (0.2, 0.3) for seed in range(3)], 2)


async def test_a_batch_that_validation_failed_stays_failed_whatever_comes_later(study: Study, box: Harness) -> None:
    study.bad = {0, 1, 2}
    run = await study.submit(batch=study.plain)
    await box.drain()
    store = await outputs_of(study.app, run)
    for params in PARAMS:
        for seed in range(3):
            await store.publish(Unit("plain", "1", params, seed), {"result.txt": b"by hand"})

    found = await run.validate(force=True)

    assert found.verdict == "succeeded"
    assert (await run.wait()).status == "failed"


# -- succeeded, partial outputs: partial -----------------------------------------------------------------------------


async def test_a_batch_with_some_outputs_is_partial_lists_what_is_missing_and_resumes_exactly_that(
    study: Study, box: Harness
) -> None:
    study.bad = {1}
    run = await study.submit()
    await box.drain()
    job = await run.wait()

    assert job.status == "partial"
    units = [(study.path(0.2, 1), "missing"), (study.path(0.3, 1), "missing")]
    listed = await lacking(run)
    assert [one for one in listed if "/study/" in one[0]] == sorted(units)
    assert sum("/study.score/" in one for one, _ in listed) == 2, "the aggregations over them are listed, too"
    assert [(one.unit, one.run) for one in await run.to_run()] == [
        ("beta=0.2-s1", True), ("beta=0.3-s1", True), ("beta=0.2", False), ("beta=0.3", False)
    ]  # fmt: skip

    study.bad.clear()
    study.ran.clear()
    assert (await run.resume()).how == "resumed"
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert sorted(study.ran) == [(0.2, 1), (0.3, 1)]
    assert (await made(box.app.control, run.id))["beta=0.2-s0"] == 1, "no row was made for what was there"

    study.ran.clear()
    again = await run.resume()
    await box.drain()
    assert (again.how, again.id, study.ran) == ("nothing", run.id, [])


async def test_a_batch_that_fails_again_after_a_resume_is_partial_again_with_both_attempts_in_its_story(
    study: Study, box: Harness
) -> None:
    study.bad = {1}
    run = await study.submit()
    await box.drain()
    await run.resume()
    await box.drain()

    round_ = ["pending", "running", "finalizing", "validating", "partial"]
    assert await path(box.app.control, run.id) == [*round_, *round_]
    validation = (await run.status()).validation
    assert validation is not None
    assert validation.attempt == 2


# -- schema change ---------------------------------------------------------------------------------------------------


async def test_outputs_of_an_older_layout_are_accepted_and_their_units_not_run(study: Study, box: Harness) -> None:
    first = await study.app.submit_batch(study.batch, params=[{"beta": 9.0}], seeds=1)
    store = await outputs_of(study.app, first)
    for params in PARAMS:
        for seed in range(3):
            unit = study.unit(params["beta"], seed)
            await write_legacy(store, unit, **{"result.txt": b"from before"})

    run = await study.submit()
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert study.ran == [(9.0, 0)]
    assert await run.read("score.json", {"beta": 0.2}) == b'{\n "n": 3\n}', "aggregations read the older layout as well"


async def test_outputs_of_a_newer_layout_are_neither_missing_nor_made_anew_but_told_with_advice(
    study: Study, box: Harness, root: Path
) -> None:
    run = await study.submit()
    await box.drain(until="0s")
    folder = (root / study.path(0.2, 0)).parent
    for entry in folder.glob("_entry-*"):
        entry.write_bytes(entry.read_bytes().replace(b'"schema": 1', b'"schema": 99').replace(b"study", b"title"))
        entry.rename(folder / "_entry-of-another-kind.json")

    await box.drain(until="1m")

    status = await run.status()
    assert status.job.status == "finalizing"
    assert "upgrade this one" in status.waits, "whoever looks is told what to do"
    assert study.ran.count((0.2, 0)) == 1, "what cannot be understood is not overwritten"


# -- corrupt output --------------------------------------------------------------------------------------------------


async def test_a_folder_in_the_place_of_an_output_fails_its_unit_and_names_the_path(
    study: Study, box: Harness, root: Path
) -> None:
    run = await study.submit()
    await box.drain()
    place = root / study.path(0.3, 2)
    place.unlink()
    place.mkdir()
    (place / "mine").write_text("mine")

    again = await study.submit()
    await box.drain()

    assert (await again.wait()).status == "partial"
    [row] = [row for row in await unit_rows(study.app.control, again.id) if row.unit == "beta=0.3-s2"]
    assert (row.status, row.starts, row.error and row.error.code) == ("failed", 1, "path_blocked")
    assert row.error is not None
    assert f"{place} is a folder with something in it" in row.error.message

    (place / "mine").unlink()
    await again.resume()
    await box.drain()
    assert (await run.validate(force=True)).verdict == "succeeded"


async def test_a_flipped_bit_in_an_entry_is_found_by_a_validation_and_mended_by_a_resume(
    study: Study, box: Harness, root: Path
) -> None:
    run = await study.submit()
    await box.drain()
    (entry,) = (root / study.path(0.3, 2)).parent.glob("_entry-*")
    flip_a_bit(entry)

    found = await run.validate(force=True)
    assert (found.corrupt, found.units) == (1, 1)
    assert [one.why for one in await run.to_run()] == ["result is corrupt (its entry is damaged)"]
    repair = await run.resume()
    await box.drain()

    assert (repair.how, repair.units) == ("linked", 1)
    assert study.ran.count((0.3, 2)) == 2
    assert len(study.ran) == 7
    assert (await run.validate(force=True)).verdict == "succeeded"
    assert await run.read("result", {"beta": 0.3}, 2) == b"result of 0.3 2"


async def test_a_flipped_bit_in_an_entry_is_mended_by_the_same_submit_again(
    study: Study, box: Harness, root: Path
) -> None:
    await study.submit()
    await box.drain()
    (entry,) = (root / study.path(0.3, 2)).parent.glob("_entry-*")
    flip_a_bit(entry)
    for aggregate in root.glob("v1/study.score/**/score.json"):
        aggregate.unlink()

    again = await study.submit()
    await box.drain()

    assert (await again.wait()).status == "succeeded"
    assert study.ran.count((0.3, 2)) == 2
    assert len(study.ran) == 7


@pytest.mark.parametrize("harm", DAMAGES, ids=lambda harm: harm.__name__)
async def test_a_damaged_output_counts_as_missing_and_is_made_anew_by_a_resume(
    study: Study, box: Harness, root: Path, harm: object
) -> None:
    run = await study.submit()
    await box.drain(until="0s")
    file = root / study.path(0.3, 2)
    harm(file)  # type: ignore[operator]
    await box.drain()

    assert (await run.wait()).status == "partial"
    listed = await lacking(run)
    assert (study.path(0.3, 2), DAMAGES[harm]) in listed  # type: ignore[index]

    study.ran.clear()
    await run.resume()
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert study.ran == [(0.3, 2)]
    assert file.read_bytes() == b"result of 0.3 2"


async def test_damage_found_after_success_is_told_and_leaves_the_state_and_a_linked_job_repairs_it(
    study: Study, box: Harness, root: Path
) -> None:
    run = await study.submit()
    await box.drain()
    before = len(await box.app.control.jobs.events(run.id))
    harmed = damage(root, [study.path(0.2, 0), study.path(0.2, 2), study.path(0.3, 1)])

    found = await run.validate(force=True)

    assert (found.verdict, found.missing, found.corrupt, found.units) == ("partial", 1, 2, 3)
    assert sorted((one.path, one.state) for one in found.first) == harmed
    assert (await run.wait()).status == "succeeded"
    assert len(await box.app.control.jobs.events(run.id)) == before, "a final state is not written to"

    study.ran.clear()
    resumed = await run.resume()
    await box.drain()
    repair = box.app.batch_run(resumed.id)

    assert (resumed.how, resumed.units) == ("linked", 3)
    assert (await repair.wait()).status == "succeeded"
    assert (await repair.status()).spec.resumed_from == run.id
    assert sorted(study.ran) == [(0.2, 0), (0.2, 2), (0.3, 1)]
    assert sorted(await made(box.app.control, repair.id)) == ["beta=0.2-s0", "beta=0.2-s2", "beta=0.3-s1"]
    assert (await run.validate(force=True)).verdict == "succeeded"


# -- written after validation ----------------------------------------------------------------------------------------


async def test_outputs_that_appear_late_move_a_partial_batch_to_succeeded_when_it_is_validated_again(
    study: Study, box: Harness
) -> None:
    study.bad = {1}
    run = await study.submit(batch=study.plain)
    await box.drain()
    store = await outputs_of(study.app, run)
    late = [Unit("plain", "1", params, 1) for params in PARAMS]

    await store.publish(late[0], {"result.txt": b"late"})
    first = await run.validate()
    between = await run.wait()
    await store.publish(late[1], {"result.txt": b"later"})
    second = await run.validate()

    assert (first.verdict, first.missing, between.status) == ("partial", 1, "partial")
    assert between.reason == "5 of 6 outputs are present, 1 missing", "it is known how far it has come"
    assert (second.verdict, (await run.wait()).status) == ("succeeded", "succeeded")
    assert study.ran.count((0.2, 1)) == 1, "nothing was run for it"


async def test_outputs_that_come_while_the_driver_looks_again_make_it_succeed_by_itself(
    study: Study, box: Harness, root: Path
) -> None:
    """No unit failed, so what is not there may be late: it is looked at again before anything is said."""
    run = await study.submit(batch=study.plain)
    await box.drain(until="0s")
    (file, *_) = root.glob("v1/plain/**/result.txt")
    aside = file.rename(root / "aside")
    await box.drain(until="1s")
    assert (await run.status()).job.status == "validating"
    assert "may be late" in (await run.status()).waits

    aside.rename(file)
    await box.drain()

    assert await path(box.app.control, run.id) == ["pending", "running", "finalizing", "validating", "succeeded"]


async def test_failures_before_a_resume_do_not_keep_the_driver_from_looking_again(
    study: Study, box: Harness, root: Path
) -> None:
    study.bad = {0}
    run = await study.submit(batch=study.plain)
    await box.drain()
    assert (await run.status()).job.status == "partial"
    study.bad = set()
    await run.resume()
    await box.drain(until="0s")
    (file, *_) = root.glob("v1/plain/**/result.txt")
    aside = file.rename(root / "aside")

    await box.drain(until="1s")

    assert (await run.status()).job.status == "validating"
    aside.rename(file)
    await box.drain()
    assert (await run.status()).job.status == "succeeded"


async def test_a_batch_that_is_at_work_is_not_validated(study: Study, box: Harness) -> None:
    run = await study.submit()

    with pytest.raises(InvalidTransition, match="not done yet"):
        await run.validate(force=True)


# -- duplicate submission --------------------------------------------------------------------------------------------


async def test_the_same_work_that_is_submitted_again_while_it_is_not_settled_is_the_same_job(
    study: Study, box: Harness, root: Path
) -> None:
    first = await study.submit()
    second = await study.submit()
    other = await study.submit(seeds=4)
    await box.drain()

    assert (first.created, second.created, second.id == first.id) == (True, False, True)
    assert other.id != first.id
    manifests = {file.name.partition(".")[0] for file in root.glob("v1/_manifests/*")}
    assert manifests == {first.id, other.id}, "the one that was not needed is gone"


async def test_the_same_work_that_is_submitted_again_after_success_is_a_new_job_that_runs_nothing(
    study: Study, box: Harness
) -> None:
    first = await study.submit()
    await box.drain()
    study.ran.clear()

    second = await study.submit()
    await box.drain()

    assert (second.created, second.id != first.id) == (True, True)
    assert ((await second.wait()).status, study.ran) == ("succeeded", [])
    assert await made(box.app.control, second.id) == {}
    assert (await second.status()).units.there == 6


async def test_a_key_makes_a_submission_the_same_job_even_after_it_has_settled(study: Study, box: Harness) -> None:
    first = await study.app.submit_batch(study.batch, params=PARAMS, seeds=2, key="monday")
    await box.drain()
    second = await study.app.submit_batch(study.batch, params=PARAMS, seeds=2, key="monday")

    assert (second.created, second.id) == (False, first.id)


async def test_forced_work_is_made_anew_although_it_is_there(study: Study, box: Harness, root: Path) -> None:
    await study.submit()
    await box.drain()
    study.ran.clear()

    run = await study.app.submit_batch(study.batch, params=PARAMS, seeds=3, force=True)
    await box.drain()

    assert (await run.wait()).status == "succeeded"
    assert len(study.ran) == 6


async def test_two_jobs_that_overlap_share_what_they_made_and_the_later_skips_it(study: Study, app: App) -> None:
    with Harness(app, concurrency=1) as box:
        first = await study.submit(seeds=3)
        second = await study.submit(seeds=4)
        box.advance("1ms")  # both are older than the units of the first, so both are planned before a unit runs
        await box.drain()

        assert {(await run.wait()).status for run in (first, second)} == {"succeeded"}
        assert Counter(study.ran) == dict.fromkeys([(beta, seed) for beta in (0.2, 0.3) for seed in range(4)], 1)
        rows = await unit_rows(app.control, first.id) + await unit_rows(app.control, second.id)
        assert Counter(row.status for row in rows) == {"succeeded": 8, "skipped": 6}


# -- partition during a write ----------------------------------------------------------------------------------------


async def test_a_write_that_stopped_in_the_middle_left_nothing_that_counts(
    study: Study, box: Harness, root: Path
) -> None:
    """The file is there, and what vouches for it is not: the entry comes last."""
    run = await study.submit()
    await box.drain(until="0s")
    folder = (root / study.path(0.2, 1)).parent
    for entry in folder.glob("_entry-*"):
        entry.unlink()
    truncate(folder / "result.txt")
    await box.drain()
    assert (await run.wait()).status == "partial"
    assert (study.path(0.2, 1), "missing") in await lacking(run)

    study.ran.clear()
    await run.resume()
    await box.drain()

    assert ((await run.wait()).status, study.ran) == ("succeeded", [(0.2, 1)])


# -- storage that is there, and refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "error"), [("find", StoreDenied), ("write", StoreFull)])
async def test_storage_that_denies_or_is_full_is_not_the_fault_of_a_unit(
    study: Study, box: Harness, monkeypatch: pytest.MonkeyPatch, step: str, error: type[StoreError]
) -> None:
    monkeypatch.setattr(unit_handler, "_PATIENCE_S", 0.0)
    run = await study.submit()

    async def refuse() -> None:
        raise error("somebody has to make room, or to allow it")

    async def meet_it() -> None:
        await stack.enter_async_context(meddling(study.app, run, **{step: refuse}))

    async with AsyncExitStack() as stack:
        # the first look is the driver's, before there is a unit
        await stack.enter_async_context(meddling(study.app, run, find=meet_it))
        await box.drain()

    assert (await run.wait()).status == "succeeded"
    rows = await unit_rows(study.app.control, run.id)
    assert {(row.status, row.failures) for row in rows} == {("succeeded", 0)}
    assert max(row.releases for row in rows) == 1, "one of them was put off"
