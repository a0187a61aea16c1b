"""The outputs cannot be reached while units run: they are put off, and nothing is counted against them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mainstay import App, Batch, BatchRun, Outputs
from mainstay.batch import unit_handler
from mainstay.errors import StoreDenied, StoreError, StoreUnavailable
from mainstay.testing import Harness
from tests.app.working import working
from tests.batch.studies import outputs_of, unit_rows


async def away_for(app: App, run: BatchRun, method: str, times: int, error: StoreError) -> None:
    """So many calls about one unit fail."""
    store = await outputs_of(app, run)
    real = getattr(store, method)
    left = times

    async def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if (method != "look" or len(args[0]) == 1) and left:
            left -= 1
            raise error
        return await real(*args, **kwargs)

    setattr(store, method, failing)


@pytest.mark.parametrize(
    "error", [StoreUnavailable("no answer\n\tcaused by: \x1b[31mconnection refused"), StoreDenied("no\nentry")]
)
async def test_whatever_storage_says_a_unit_is_put_off_for_it(app: App, box: Harness, error: StoreError) -> None:
    @app.batch(name="study", outputs=["a"], retries=0)
    def study(params: dict, out: Outputs) -> None:
        out.save("a", b"done")

    run = await app.submit_batch(study, params=[{"n": n} for n in range(3)])
    await away_for(app, run, "look", 2, error)
    await box.drain()

    assert (await run.status()).job.status == "succeeded"
    rows = await unit_rows(app.control, run.id)
    assert sorted(row.releases for row in rows) == [0, 1, 1]
    assert {row.failures for row in rows} == {0}


async def test_a_unit_waits_for_storage_no_longer_than_it_may_run(app: App, box: Harness) -> None:
    """Else it would be timed out, which is a failure."""

    @app.batch(name="study", outputs=["a"], retries=0, timeout="1s")
    def study(params: dict, out: Outputs) -> None:
        out.save("a", b"done")

    run = await app.submit_batch(study, params=[{}])
    await away_for(app, run, "publish", 3, StoreUnavailable("no answer"))
    await box.drain()

    assert (await run.status()).job.status == "succeeded"
    (row,) = await unit_rows(app.control, run.id)
    assert (row.failures, row.releases) == (0, 1)


async def test_a_unit_is_put_off_for_longer_each_time(app: App, box: Harness) -> None:
    @app.batch(name="study", outputs=["a"], retries=0)
    def study(params: dict, out: Outputs) -> None:
        out.save("a", b"done")

    run = await app.submit_batch(study, params=[{}, {"n": 1}])
    await away_for(app, run, "look", 14, StoreUnavailable("no answer"))
    await box.drain()

    assert (await run.status()).job.status == "succeeded"
    waits = []
    for row in await unit_rows(app.control, run.id):
        began = [event.at_ms for event in await app.control.jobs.events(row.id) if event.to == "running"]
        waits.append([(later - earlier) / 1000 for earlier, later in pairwise(began)])
    assert waits == [[10, 20, 40, 80, 160, 300, 300]] * 2


async def test_an_output_that_cannot_be_read_keeps_no_other_unit_from_running(
    app: App, box: Harness, root: Path
) -> None:
    """A loop of links is neither present nor missing: its unit waits, and the batch says for what."""
    ran: list[int] = []

    @app.batch(name="study", outputs=["a"], retries=0, version="1")
    def study(params: dict, out: Outputs) -> None:
        ran.append(params["n"])
        out.save("a", b"done")

    first = await app.submit_batch(study, params=[{"n": 0}])
    await box.drain()
    (file,) = root.glob("v1/study/**/a")
    file.unlink()
    file.symlink_to(file)
    run = await app.submit_batch(study, params=[{"n": n} for n in range(4)])
    await box.drain(until="1m")

    assert (await first.status()).job.status == "succeeded"
    assert sorted(ran) == [0, 1, 2, 3]
    stands = await run.status()
    assert stands.job.status == "running"
    assert "the outputs of 1 unit cannot be checked: " in stands.waits
    assert str(file) in stands.waits

    file.unlink()
    await box.drain()
    assert ((await run.status()).job.status, sorted(ran)) == ("succeeded", [0, 0, 1, 2, 3])


async def test_a_batch_whose_units_cannot_publish_says_why(
    app: App, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_handler, "_PATIENCE_S", 0.0)
    run = await app.submit_batch(one_unit(app), params=[{"n": 1}])
    store = await outputs_of(app, run)
    with monkeypatch.context() as full:
        full.setattr(store, "publish", no_space)
        await box.drain(until="30s")
        stands = await run.status()
    await box.drain()

    assert stands.trouble == "unit n=1: the outputs cannot be reached: No space left on device"
    assert stands.waits == stands.trouble
    assert ((await run.status()).trouble, (await run.status()).job.status) == ("", "succeeded")


async def test_a_batch_says_why_also_while_its_units_hold_on_to_their_results(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app, working(app):
        run = await app.submit_batch(one_unit(app), params=[{"n": 1}])
        store = await outputs_of(app, run)
        with monkeypatch.context() as full:
            full.setattr(store, "publish", no_space)
            while not (stands := await run.status()).trouble:
                await asyncio.sleep(0.01)
        job = await run.wait("60s")

    assert stands.units.running == 1
    assert "No space left on device" in stands.trouble
    assert job.status == "succeeded"


def one_unit(app: App) -> Batch:
    @app.batch(name="study", outputs=["a"], retries=0)
    async def study(params: dict, out: Outputs) -> None:
        out.save("a", b"done")

    return study


async def no_space(*_: Any) -> None:
    raise StoreUnavailable("No space left on device")
