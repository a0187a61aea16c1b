"""How a batch stands, as people see it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay import App, Outputs
from mainstay.batch.service import BatchService
from mainstay.control.drivers import driver_id
from mainstay.testing import Harness


async def test_a_driver_that_ends_while_its_batch_is_looked_at_is_not_counted_as_a_unit(
    app: App, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.batch(name="study", outputs={"result": "result.txt"}, version="1")
    async def study(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=3)
    await box.drain()
    service: BatchService = run._service()
    driver = driver_id(await service.control.jobs.get(run.id))
    get, reads = service.control.store.get, []

    async def before_it_ended(ids: list[str]) -> Any:
        rows = await get(ids)
        if ids != [driver] or reads:
            return rows
        reads.append(driver)
        return [msgspec.structs.replace(row, status="running", version=row.version - 1) for row in rows if row]

    monkeypatch.setattr(service.control.store, "get", before_it_ended)
    status = await service.status(run.id)

    assert reads
    assert (status.units.done, status.units.succeeded, status.units.running) == (3, 3, 0)
