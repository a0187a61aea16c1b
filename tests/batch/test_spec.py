"""What is stored of a batch, and who may read it."""

from __future__ import annotations

import msgspec
import pytest

from mainstay import App, Outputs
from mainstay.batch.spec import SCHEMA, spec_of
from mainstay.errors import SchemaTooNew
from mainstay.testing import Harness
from tests.batch.studies import UNSEALED


async def test_a_batch_of_a_newer_version_waits_for_a_newer_worker(app: App, box: Harness) -> None:
    @app.batch(name="study", outputs={"result": "result.txt"}, version="1")
    def study(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=2)
    service = run._service()
    job = await app.control.jobs.get(run.id)
    await run.cancel()
    newer = msgspec.structs.replace(spec_of(job, UNSEALED), schema=SCHEMA + 1)
    made = await service.submit(newer, (await service.manifest(run.id)).groups, app.control.jobs.plan())

    await box.drain(until="5m")

    stands = await app.control.jobs.get(made.id)
    assert (stands.status, stands.failures) == ("scheduled", 0)
    assert "was submitted by a newer Mainstay" in (stands.reason or "")
    with pytest.raises(SchemaTooNew, match="upgrade this one"):
        await service.status(made.id)
