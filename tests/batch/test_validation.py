"""What a validation finds and keeps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mainstay import App, BatchRun, Outputs
from mainstay.batch import validation
from mainstay.batch.report.model import batch_report
from mainstay.testing import Harness
from tests.batch.studies import UNSEALED


@pytest.fixture
async def run(app: App, box: Harness) -> BatchRun:
    """It has succeeded."""

    @app.batch(name="study", outputs={"result": "result.txt"}, version="1")
    def study(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=5)
    await box.drain()
    return run


async def test_the_list_of_one_look_has_nothing_of_another(
    run: BatchRun, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "PAGE", 2)
    store = await run._service().store(run.id)
    files = sorted(root.glob("v1/study/**/result.txt"))
    for file in files:
        file.rename(file.with_suffix(".aside"))
    many = await run.validate()
    for file in files[1:]:
        file.with_suffix(".aside").rename(file)
    one = await run.validate()

    assert [len(await validation.listed(store, many, page=page)) for page in range(4)] == [2, 2, 1, 0]
    assert [len(await validation.listed(store, one, page=page)) for page in range(2)] == [1, 0]
    assert (many.missing, one.missing, len(many.first)) == (5, 1, 5)


async def test_a_look_that_began_before_another_says_nothing_after_it(
    app: App, box: Harness, run: BatchRun, root: Path
) -> None:
    """Everything was there when the first began; the second found damage, and was quicker."""
    earlier = await run.validate()
    again = await app.submit_batch(app.batches["study"], seeds=5)
    next(root.glob("v1/study/**/result.txt")).unlink()
    app.batches["study"].unit.function = _fails
    await box.drain()
    assert (await again.status()).job.status == "partial"

    await validation.settle(app.control, again.id, earlier, UNSEALED, actor="slow")
    assert (await again.status()).job.status == "partial"

    later = msgspec.structs.replace(earlier, at_ms=box.clock.now_ms())
    await validation.settle(app.control, again.id, later, UNSEALED, actor="quick")
    assert (await again.status()).job.status == "succeeded"


def _fails(seed: int, out: Outputs) -> None:
    raise ValueError("not this time")


async def test_a_result_that_is_no_validation_is_told_with_its_job(app: App, box: Harness, run: BatchRun) -> None:
    job = msgspec.structs.replace(await app.control.jobs.get(run.id), result=b"\x01")
    with pytest.raises(ValueError, match=f"{job.id}: its last validation cannot be read"):
        validation.validation_of(job, UNSEALED)


async def test_every_validation_leaves_a_record_also_when_it_finds_what_the_last_one_found(
    app: App, box: Harness, run: BatchRun, root: Path
) -> None:
    """A batch that has succeeded is final, and its audit trail takes no more notes."""
    service = run._service()
    for _ in range(2):
        box.clock.advance(1)
        await run.validate()
    next(root.glob("v1/study/**/result.txt")).unlink()
    box.clock.advance(1)
    await run.validate()

    kept = [(one.attempt, one.verdict, one.missing) for one in (await batch_report(service, run.id)).validations]
    assert kept == [(1, "succeeded", 0), (2, "succeeded", 0), (3, "succeeded", 0), (4, "partial", 1)]
    assert (await run.status()).job.status == "succeeded"


async def test_a_partial_batch_that_is_validated_again_has_a_note_for_each_look(
    app: App, box: Harness, root: Path
) -> None:
    @app.batch(name="half", outputs={"result": "result.txt"}, version="1", retries=0)
    def half(seed: int, out: Outputs) -> None:
        if seed:
            raise ValueError("not this one")
        out.save("result", b"done")

    run = await app.submit_batch(half, seeds=2)
    await box.drain()
    before = [event.to for event in await app.control.jobs.events(run.id)]
    box.clock.advance(1)
    await run.validate()

    after = [event.to for event in await app.control.jobs.events(run.id)]
    assert (before[-1], after[len(before) :]) == ("partial", ["partial"])
