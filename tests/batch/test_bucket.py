"""Jobs and outputs in one bucket, and nothing else: no database, no disk that is shared."""

from __future__ import annotations

import os

import pytest

from mainstay import App, Outputs, grid
from mainstay.stores.versioned import objects
from servers.azurite import azure_url
from tests.app.working import working
from tests.batch.studies import outputs_of, unit_rows
from tests.places import server_url

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def test_a_study_needs_nothing_but_a_bucket() -> None:
    """Partial, resumed, damaged after success and repaired; whoever looks has only the bucket's address."""
    prefix = f"study{os.getpid()}"
    jobs, outputs = (azure_url(server_url("azurite"), f"{prefix}-{part}") for part in ("jobs", "outputs"))
    await objects.prepare(jobs)
    broken, ran = [True], []
    app = App(jobs, outputs=outputs, poll="200ms")

    def highest(params: dict, runs: list) -> int:
        return max(int(run.read()) for run in runs)

    @app.batch(name="study", outputs=["result.txt"], aggregate=highest, version="1", retries=0)
    def study(params: dict, seed: int, out: Outputs) -> None:
        ran.append((params["n"], seed))
        if broken and seed == 1:
            raise ValueError("not yet")
        out.save("result.txt", str(seed).encode())

    async with app, working(app):
        run = await app.submit_batch(study, params=grid(n=[1, 2]), seeds=3)
        first = await run.wait("60s")
        broken.clear()
        ran.clear()
        await run.resume()
        second = await run.wait("60s")
        resumed_ran = sorted(ran)
        [gone, *_] = [one.path for one in await run.outputs() if one.unit == "n=2-s0"]
        await (await outputs_of(app, run)).blobs.delete([gone])
        ran.clear()
        linked = await run.resume()
        repair = app.batch_run(linked.id)
        third = await repair.wait("60s")

        assert (first.status, second.status, third.status) == ("partial", "succeeded", "succeeded")
        assert resumed_ran == [(1, 1), (2, 1)]
        assert (linked.how, ran) == ("linked", [(2, 0)])
        assert await run.read("highest.json", {"n": 2}) == b"2"
        assert len(await unit_rows(app.control, run.id)) == 8
