"""Runs of a simulated fleet, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run import LoadRun
from mainstay.load.stats.model import Moment, Summary, Window
from mainstay.testing import VirtualLoop, run_virtual
from sim.fleet import SimulatedFleet
from tests.load.trials import GET, written


class Collected:
    """An output that keeps the windows of a run."""

    name = "collected"

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.stopped = 0

    async def start(self, header: object) -> None:
        pass

    def add(self, moment: Moment) -> None:
        self.windows.append(moment.window)

    async def stop(self, summary: Summary) -> None:
        self.stopped += 1


class FleetTrial:
    """A fleet, and a run of it."""

    def __init__(self, fleet: SimulatedFleet, folder: Path, text: str = GET, **options: Any) -> None:
        self.fleet = fleet
        self.output = Collected()
        count = sum(fleet.processes)
        self.planned = PlannedRun(written(folder, text), LoadOptions(processes=count, **options))
        self.run = LoadRun(self.planned.spec(), "run-1", clock=fleet.clock, runner=fleet.make, outputs=[self.output])

    def succeed(self, *, earlier: Summary | None = None) -> LoadRun:
        """What a new leader runs. `earlier`: what the one before has saved."""
        self.output = Collected()
        self.run = LoadRun(
            self.planned.spec(),
            "run-1",
            clock=self.fleet.clock,
            runner=self.fleet.make,
            outputs=[self.output],
            earlier=earlier,
        )
        return self.run

    async def until_loaded(self) -> None:
        while not self.fleet.sent:
            await asyncio.sleep(0.1)

    @property
    def busiest(self) -> int:
        """The most calls that all targets together counted in a window."""
        buckets = {bucket for target in self.fleet.targets for bucket in target.calls}
        return max((sum(target.calls[bucket] for target in self.fleet.targets) for bucket in buckets), default=0)


def with_fleet(
    test: Callable[[FleetTrial], Awaitable[None]],
    folder: Path,
    processes: Sequence[int],
    *,
    seed: int = 0,
    fleet: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Try something with a fleet. `options` are those of the run, `fleet` those of the fleet."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await test(FleetTrial(SimulatedFleet(loop, processes, seed=seed, **(fleet or {})), folder, **options))

    run_virtual(main(), seed=seed)
