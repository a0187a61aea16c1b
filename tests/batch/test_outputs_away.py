"""The outputs cannot be reached while units run: they are put off, and nothing is counted against them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from mainstay import App, BatchRun, Outputs
from mainstay.errors import StoreDenied, StoreError, StoreUnavailable
from mainstay.testing import Harness
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
        began = [event.at_ms for event in await app.control.events(row.id) if event.to == "running"]
        waits.append([(later - earlier) / 1000 for earlier, later in pairwise(began)])
    assert waits == [[10, 20, 40, 80, 160, 300, 300]] * 2
