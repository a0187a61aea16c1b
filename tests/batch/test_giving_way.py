"""A driver that is busy with a batch, while the batch gets another."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay import App, Outputs
from mainstay.batch.driver import driver_request
from mainstay.model import Session
from mainstay.testing import Harness


async def test_a_driver_that_ends_the_units_of_a_batch_leaves_those_of_the_next_driver_alone(
    app: App, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline is over, and its driver ends what is open. Before it has done so, somebody resumes the batch."""
    good = False

    @app.batch(name="study", outputs={"result": "result.txt"}, retries=9, backoff_base="1h", backoff_cap="1h")
    def study(seed: int, out: Outputs) -> None:
        if not good:
            raise ValueError("not yet")
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=5, deadline="60s")
    await box.drain(until="30s")
    good = True
    find = box.store.find
    resumed: list[str] = []

    async def resumed_before(query: Any, **kwargs: Any) -> Any:
        if query.parent == run.id and not resumed and (await app.control.jobs.get(run.id)).settled_ms is not None:
            resumed.append((await run.resume()).how)
            await box.store.open_session(Session(id="another", host="elsewhere"))
            (job,) = await app.control.claims.claim(["default"], "another", 1)
            spec = await run._service().spec(run.id)
            await app.control.drivers.hand_over(
                job, driver_request(job, spec, None, app.client.sealer), reason="left to its units"
            )
        return await find(query, **kwargs)

    monkeypatch.setattr(box.store, "find", resumed_before)
    await box.drain()

    assert resumed == ["resumed"]
    job = (await run.status()).job
    assert (job.status, job.reason) == ("succeeded", "5 of 5 outputs are present")
