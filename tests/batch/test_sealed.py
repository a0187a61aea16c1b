"""A batch of an app with a codec: what is stored of it with the jobs is sealed, and all goes on as without."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from mainstay import App, Outputs
from mainstay.batch import BatchService
from mainstay.errors import InvalidInput
from mainstay.testing import Harness
from tests.batch.studies import all_rows, delete


class Zip:
    encode = staticmethod(zlib.compress)
    decode = staticmethod(zlib.decompress)


async def test_a_sealed_batch_runs_is_validated_and_resumed_and_shows_nothing_to_others(root: Path) -> None:
    app = App("memory:", outputs=f"file://{root}?sync=off", codec=Zip())

    def count(params: dict, runs: list) -> int:
        return len(runs)

    @app.batch(name="study", outputs={"result": "result.txt"}, aggregate=count, version="1")
    def study(params: dict, seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    with Harness(app) as box:
        run = await app.submit_batch(study, params=[{"patient": "Ann"}], seeds=3)
        await box.drain(until="0s")
        assert (await run.status()).units.succeeded == 3
        await box.drain()
        delete(next(root.glob("v1/study/**/result.txt")))
        assert (await run.validate(force=True)).missing == 1
        repaired = app.batch_run((await run.resume()).id)
        await box.drain()
        assert (await repaired.status()).job.status == "succeeded"

        rows = [await app.control.jobs.get(run.id), *await all_rows(app.control, run.id)]
        stored = [part for row in rows for part in (row.payload, row.result, row.checkpoint) if part is not None]
        assert not [part for part in stored if b"Ann" in part or b"succeeded" in part]
        with pytest.raises(InvalidInput, match="is sealed by a codec"):
            await BatchService(app.control).status(run.id)
