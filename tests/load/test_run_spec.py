"""A planned run as data."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mainstay.clock import SystemClock
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run import LoadRun
from mainstay.load.run_spec import RunSpec
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.trials import written

LAYERS = """
from mainstay.load import HTTPResponse, Provide, Use, Workflow, depends, setup, state, step, teardown


class First(Workflow):
    iterations = 4
    vus = 2

    @setup
    async def ready(self):
        return "ready"

    @step()
    async def one(self) -> HTTPResponse:
        return await self.client.http.get("/")

    @state("Second")
    def word(self) -> Provide[str]:
        return "passed on"

    @teardown
    async def tidy(self):
        await self.client.http.get("/")


@depends("First")
class Second(Workflow):
    iterations = 2
    thresholds = "p95 < 5s"

    @state("First")
    def read(self, word: str = "") -> Use[str]:
        return word

    @step()
    async def two(self) -> HTTPResponse:
        assert self.read() == "passed on"
        return await self.client.http.get("/")
"""


async def test_a_run_is_led_from_data_alone(tmp_path: Path) -> None:
    async with TargetServer(TargetOptions()) as target:
        planned = PlannedRun(written(tmp_path, LAYERS), LoadOptions(processes=1, base_url=target.url))
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(planned.spec()), type=RunSpec)

        summary = await LoadRun(stored, "run-1", clock=SystemClock()).run()

        assert stored == planned.spec()
        assert summary.ended == "finished"
        assert summary.iterations == 6
        # and that of the teardown
        assert target.counts().completed == 7
        assert [one.text for one in summary.thresholds] == ["p95 < 5s"]
        assert summary.header.run == "run-1"
