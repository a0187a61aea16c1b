"""The leader of a load test with many slices, as a manager runs it: it merges, judges, tallies and publishes.

`python -m bench.fan_in_leader URL JOB SLICES SECONDS` prints a line of JSON at its end. Nothing is stored: what is
measured is what statistics cost.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial

import msgspec

from mainstay.bus.nats import connect_nats
from mainstay.clock import SystemClock
from mainstay.load.fleet import FleetMember, FleetRecord, FleetRunner, FleetSettings
from mainstay.load.fleet.live import BusOutput
from mainstay.load.fleet.messages import SliceEnd
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run import LoadRun
from mainstay.load.sources import load_file
from mainstay.load.stats.model import Moment

from .load_runs import HERE

#: of the timer that shows how late the event loop is
_TICK_S = 0.01
#: all slices have to hear the order to go before the instant
_AHEAD_S = 5.0


class Led(msgspec.Struct, kw_only=True):
    """The end of a run."""

    ended: str
    requests: int
    windows: int
    """that were passed on, merged over all slices"""
    taken: int
    """of all slices"""
    late: int
    """of these: passed on later"""
    lag_ms: float
    """the longest delay of the event loop under load"""
    lag_p99_ms: float
    live_cpu_s: float
    """of this process, from the first window to the last"""
    live_s: float


class OneMachineEach:
    """Placement: each slice has a node from the beginning, and none is lost."""

    async def after(self, number: int, token: int) -> FleetMember:
        if token:
            await asyncio.Event().wait()
        return FleetMember(node=f"n{number}", processes=1)

    async def over(self, number: int, token: int) -> str:
        await asyncio.Event().wait()
        return f"{number} {token}"

    async def give_up(self, number: int, token: int, why: str) -> None:
        raise RuntimeError(f"slice {number} ({token}) was given up: {why}")

    async def end_of(self, number: int, token: int) -> SliceEnd | None:
        del number, token
        return None

    def waiting(self, number: int) -> str:
        return f"slice {number} waits"


class LoopWatch:
    """How late the event loop is, and what it costs, from the first window on: an output of the run."""

    name = "watch"

    def __init__(self) -> None:
        self.lags_s: list[float] = []
        self.windows = 0
        self.cpu_s = self.at_s = 0.0
        self._began = (0.0, 0.0)
        self._watching: asyncio.Task[None] | None = None

    async def start(self, header: object) -> None:
        del header

    def add(self, moment: Moment) -> None:
        del moment
        self.windows += 1
        if self._watching is None:
            self._began = (time.process_time(), time.monotonic())
            self._watching = asyncio.ensure_future(self._watch())
        self.cpu_s, self.at_s = time.process_time() - self._began[0], time.monotonic() - self._began[1]

    async def stop(self, summary: object) -> None:
        del summary
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            due_s = time.monotonic() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self.lags_s.append(max(0.0, time.monotonic() - due_s))


async def not_stored(_: FleetRecord) -> None:
    """No leader follows."""


async def main(url: str, job: str, slices: int, seconds: float) -> None:
    bus = await connect_nats(url, name="leader", timeout_s=20)
    source = load_file(HERE / "mainstay_load.py")
    options = LoadOptions(workflows=("Steps",), processes=slices, vus=slices, duration=f"{seconds:g}s", drain="1s")
    leaders: list[FleetRunner] = []

    def lead(*given: object, **named: object) -> FleetRunner:
        leaders.append(make(*given, **named))  # type: ignore[arg-type] # as the run calls it
        return leaders[-1]

    make = partial(
        FleetRunner,
        bus=bus,
        job=job,
        slices=[1] * slices,
        assignments=OneMachineEach(),
        epoch=1,
        record=FleetRecord(),
        save=not_stored,
        settings=FleetSettings(ahead_s=_AHEAD_S),
    )
    watch = LoopWatch()
    run = LoadRun(
        PlannedRun(source, options).spec(),
        job,
        clock=SystemClock(),
        runner=lead,
        outputs=[BusOutput(bus, job), watch],
    )
    summary = await run.run()
    lags_ms = sorted(1000 * lag_s for lag_s in watch.lags_s) or [0.0]
    led = Led(
        ended=summary.ended,
        requests=summary.requests,
        windows=watch.windows,
        taken=sum(report.windows for report in summary.slices),
        late=sum(report.late_windows for report in summary.slices),
        lag_ms=round(lags_ms[-1], 1),
        lag_p99_ms=round(lags_ms[len(lags_ms) * 99 // 100], 1),
        live_cpu_s=round(watch.cpu_s, 2),
        live_s=round(watch.at_s, 2),
    )
    print(msgspec.json.encode(led).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
