"""The store of the jobs is away for a moment: nothing of a batch fails for it, is lost, or is done twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstay import App, Batch, Outputs, context
from mainstay.errors import StoreUnavailable
from mainstay.stores import Change
from mainstay.testing import Harness
from tests.batch.studies import made, unit_rows

FILE = {"result": "result.txt"}


@pytest.fixture
def study(app: App) -> Batch:
    @app.batch(name="study", outputs=FILE, version="1")
    def study(params: dict, seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    return study


def away_once(
    box: Harness, monkeypatch: pytest.MonkeyPatch, method: str, when: Callable[..., bool], *, too_late: bool
) -> list[str]:
    """One call fails: before it was done, or after, so that only its answer is lost. Which calls failed."""
    real = getattr(box.store, method)
    failed: list[str] = []

    async def once(*args: Any, **kwargs: Any) -> Any:
        if failed or not when(*args):
            return await real(*args, **kwargs)
        failed.append(method)
        if too_late:
            await real(*args, **kwargs)
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(box.store, method, once)
    return failed


def _hands_over(changes: list[Change]) -> bool:
    return any(change.spawn and change.before.parent is None for change in changes)


def _goes_on_to_validate(changes: list[Change]) -> bool:
    return any(change.moves[-1].to == "validating" for change in changes)


def _cancels(changes: list[Change]) -> bool:
    return any(change.moves[-1].to == "cancelled" for change in changes)


@pytest.mark.parametrize("too_late", [False, True])
async def test_a_batch_is_handed_over_to_its_driver_when_the_store_is_back(
    app: App, study: Batch, box: Harness, monkeypatch: pytest.MonkeyPatch, too_late: bool
) -> None:
    run = await app.submit_batch(study, seeds=3)
    failed = away_once(box, monkeypatch, "apply", _hands_over, too_late=too_late)

    await box.drain()

    assert failed
    assert (await run.status()).job.status == "succeeded"
    assert (await made(app.control, run.id)).total() == 3


async def test_a_submit_whose_answer_was_lost_left_a_batch_that_runs(
    app: App, study: Batch, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = away_once(box, monkeypatch, "insert", lambda *_: True, too_late=True)
    with pytest.raises(StoreUnavailable):
        await app.submit_batch(study, seeds=3)

    run = await app.submit_batch(study, seeds=3)
    await box.drain()

    assert failed
    assert not run.created
    assert (await run.status()).job.status == "succeeded"


async def test_a_failure_budget_stops_a_batch_also_if_the_store_was_away_at_that_moment(
    app: App, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    @app.batch(name="failing", outputs=FILE, retries=0, failure_budget=0.1)
    def failing(seed: int, out: Outputs) -> None:
        ran.append(seed)
        if seed < 3:
            raise ValueError("never converges")
        context().snooze("1h")

    run = await app.submit_batch(failing, seeds=10)
    failed = away_once(box, monkeypatch, "apply", _cancels, too_late=False)

    await box.drain()

    assert failed
    job = (await run.status()).job
    assert (job.status, job.error and job.error.code) == ("failed", "failure_budget")
    assert sorted(ran) == list(range(10)), "those that waited were not run again"


@pytest.mark.parametrize("too_late", [False, True])
async def test_a_driver_goes_on_where_it_was_when_the_store_is_back(
    app: App, study: Batch, box: Harness, monkeypatch: pytest.MonkeyPatch, too_late: bool
) -> None:
    run = await app.submit_batch(study, seeds=3)
    failed = away_once(box, monkeypatch, "apply", _goes_on_to_validate, too_late=too_late)

    await box.drain()

    assert failed
    assert (await run.status()).job.status == "succeeded"
    (driver,) = await unit_rows(app.control, run.id, "driver")
    assert driver.failures == 0
