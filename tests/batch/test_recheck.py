"""Outputs that come late."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay import App, BatchRun, Outputs, grid
from mainstay.batch.recheck import Rechecker
from mainstay.batch.service import BatchService
from mainstay.outputs import Unit
from mainstay.testing import Harness
from tests.batch.studies import outputs_of

EVERY_S = 600.0


@pytest.fixture
async def run(app: App, box: Harness) -> BatchRun:
    """Partial: one of its three units failed."""

    @app.batch(name="late", outputs={"result": "result.txt"}, retries=0, version="1")
    def late(params: dict, out: Outputs) -> None:
        if params["n"] == 1:
            raise ValueError("not today")
        out.save("result", b"there")

    run = await app.submit_batch(late, params=grid(n=[0, 1, 2]))
    await box.drain()
    assert (await run.status()).job.status == "partial"
    return run


def rechecker(app: App) -> Rechecker:
    return Rechecker(BatchService(app.control), EVERY_S)


async def bring_it(app: App, run: BatchRun) -> None:
    await (await outputs_of(app, run)).publish(Unit("late", "1", {"n": 1}), {"result.txt": b"by hand"})


async def test_a_partial_batch_whose_outputs_have_come_succeeds_by_itself(
    app: App, box: Harness, run: BatchRun
) -> None:
    await bring_it(app, run)
    box.clock.advance(EVERY_S)
    assert await rechecker(app).look() == [run.id]
    job = (await run.status()).job
    assert (job.status, job.reason) == ("succeeded", "3 of 3 outputs are present")
    assert (await app.control.jobs.events(job.id))[-1].actor == "leader"


async def test_one_that_still_lacks_something_is_left_as_it_is(app: App, box: Harness, run: BatchRun) -> None:
    before = (await run.status()).job
    box.clock.advance(EVERY_S)
    assert await rechecker(app).look() == []
    assert (await run.status()).job == before


async def test_it_is_looked_at_less_often_the_longer_it_lacks_something(app: App, box: Harness, run: BatchRun) -> None:
    looks = rechecker(app)
    box.clock.advance(100 * EVERY_S)
    assert await looks.look() == []
    await bring_it(app, run)
    box.clock.advance(EVERY_S)
    assert await looks.look() == [], "it was looked at a moment ago, for its age"
    box.clock.advance(12 * EVERY_S)
    assert await looks.look() == [run.id]


async def test_storage_that_is_away_holds_up_no_other(app: App, box: Harness, run: BatchRun, root: Path) -> None:
    await bring_it(app, run)
    box.clock.advance(EVERY_S)
    aside = root.with_name("aside")
    root.rename(aside)
    looks = rechecker(app)
    assert await looks.look() == []
    aside.rename(root)
    box.clock.advance(EVERY_S)
    assert await looks.look() == [run.id]


def test_an_app_looks_as_often_as_its_settings_say() -> None:
    assert "recheck" in {duty.name for duty in _duties(App("memory:", recheck="5m"))}
    assert "recheck" not in {duty.name for duty in _duties(App("memory:", recheck="off"))}


def _duties(app: App) -> list:
    with Harness(app):
        return list(app.duties(app.control))
