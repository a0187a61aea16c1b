"""The port for what produces the load: the same suite on generator processes, on simulated generators, and on fleets of
both."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from mainstay.clock import Clock, SystemClock
from mainstay.load.engine.messages import StartInstant
from mainstay.load.generator_process import GeneratorLost, Limits
from mainstay.load.generators import Generators
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run import LoadRun
from mainstay.load.runner import LoadRunner, MakeRunner, MakeSliceRunner
from mainstay.load.stats.model import Summary, Window
from mainstay.load.target import TargetOptions, TargetServer
from mainstay.testing import BusFaults, LoopClock, VirtualLoop, run_virtual
from sim.fleet import SimulatedFleet
from sim.load_runner import SimulatedRunner, SimulatedTarget
from tests.load.fleet.nats_fleets import nats_fleet
from tests.load.trials import GET, written

HASTY = Limits(leave_s=2.0, tell_s=0.2, last_words_s=0.2, tick_s=0.1)


class Bench:
    """The port under test, on a target that counts."""

    def __init__(self, make: MakeRunner, clock: Clock, folder: Path, url: str, counted: Callable[[], int]) -> None:
        self.make = make
        self.clock = clock
        self.counted = counted
        self.windows: list[Window] = []
        self._folder = folder
        self._url = url

    def planned(self, **options: Any) -> PlannedRun:
        test = written(self._folder, GET)
        return PlannedRun(test, LoadOptions(processes=2, base_url=self._url, preflight=False, **options))

    def runner(self) -> LoadRunner:
        return self.make(2, self.windows.append, limits=HASTY)

    async def go(self, runner: LoadRunner, **continued: Any) -> Any:
        """`continued`: where in its plan the load begins, as in `StartInstant`."""
        wall = self.clock.now_ms() / 1000 + 0.5
        start = StartInstant(after_s=0.5, wall=wall, **continued) if continued else None
        return await runner.go(["Shop"], {}, longest_s=60.0, drain_s=1.0, start=start)

    async def until_loaded(self, running: asyncio.Future[Any]) -> None:
        while not any(window.iterations for window in self.windows):
            assert not running.done(), running
            await asyncio.sleep(0.01)

    @property
    def iterations(self) -> int:
        return sum(window.iterations for window in self.windows)


Run = Callable[[Callable[[Bench], Awaitable[None]]], None]


@pytest.fixture(
    params=["generators", "simulated", "fleet in simulation", pytest.param("fleet on nats", marks=pytest.mark.slow)]
)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return run_on(request.param, tmp_path)


@pytest.fixture(params=["generators", "simulated"])
def run_slice(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """The runners that may be a part of all processes."""
    return run_on(request.param, tmp_path)


def run_on(kind: str, tmp_path: Path) -> Run:
    async def with_processes(test: Callable[[Bench], Awaitable[None]]) -> None:
        async with TargetServer(TargetOptions()) as target:
            await test(Bench(Generators, SystemClock(), tmp_path, target.url, lambda: target.counts().completed))

    async def in_simulation(test: Callable[[Bench], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        target, clock = SimulatedTarget(), LoopClock(loop)
        make = functools.partial(SimulatedRunner, loop=loop, clock=clock, target=target)
        await test(Bench(make, clock, tmp_path, "http://target.test", lambda: target.total))

    async def in_simulated_fleet(test: Callable[[Bench], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        faults = BusFaults(latency_s=0.01, jitter_s=0.01, lost=0.05, duplicated=0.1, reordered=0.1, late_s=0.3)
        fleet = SimulatedFleet(loop, [1, 1], faults=faults)
        await test(Bench(fleet.make, fleet.clock, tmp_path, "http://target.test", lambda: fleet.sent))

    async def in_fleet_on_nats(test: Callable[[Bench], Awaitable[None]]) -> None:
        async with TargetServer(TargetOptions()) as target, nats_fleet([1, 1]) as fleet:
            await test(Bench(fleet, SystemClock(), tmp_path, target.url, lambda: target.counts().completed))

    match kind:
        case "generators":
            return lambda test: asyncio.run(with_processes(test))
        case "simulated":
            return lambda test: run_virtual(in_simulation(test))
        case "fleet in simulation":
            return lambda test: run_virtual(in_simulated_fleet(test))
    return lambda test: asyncio.run(in_fleet_on_nats(test))


def test_nothing_is_sent_before_it_goes_and_the_windows_have_all_that_was_sent(run: Run) -> None:
    async def test(bench: Bench) -> None:
        async with bench.runner() as runner:
            await runner.prepare(bench.planned(rate="40/s", duration="1s").order())
            await runner.set_up(["Shop"], {}, calls=0)
            assert bench.counted() == 0

            reports, lost = await bench.go(runner)

            assert lost is None
            assert bench.iterations == bench.counted() == 40
            assert sum(report.workflows["Shop"].account.begun for report in reports) == 40
            assert all(report.workflows["Shop"].account.error == "" for report in reports)
            buckets = [window.bucket for window in bench.windows]
            assert buckets == list(range(buckets[0], buckets[0] + len(buckets)))
            assert 9 <= len(buckets) <= 15
            await runner.collect_provided(["Shop"], calls=0)
            await runner.tear_down(["Shop"], calls=0)
            assert not runner.ended.done()
        await runner.ended

    run(test)


def test_a_stop_ends_the_load_in_good_order(run: Run) -> None:
    async def test(bench: Bench) -> None:
        async with bench.runner() as runner:
            await runner.prepare(bench.planned(vus=4, duration="10m").order())
            running = asyncio.ensure_future(bench.go(runner))
            await bench.until_loaded(running)

            runner.stop(hurry=True)

            reports, lost = await running
            assert (len(reports), lost) == (2, None)
            assert bench.iterations == bench.counted() > 0

    run(test)


def test_a_kill_ends_the_load_as_a_loss_and_keeps_the_windows_before(run: Run) -> None:
    async def test(bench: Bench) -> None:
        async with bench.runner() as runner:
            await runner.prepare(bench.planned(vus=4, duration="10m").order())
            running = asyncio.ensure_future(bench.go(runner))
            await bench.until_loaded(running)

            runner.kill()

            reports, lost = await running
            assert reports == []
            assert isinstance(lost, GeneratorLost)
            assert "ended with signal 9, while it was under load" in str(lost)
            await runner.ended
            assert 0 < bench.iterations <= bench.counted()
            with pytest.raises(GeneratorLost):
                await runner.tear_down(["Shop"], calls=0)

    run(test)


def test_a_runner_that_is_killed_before_it_goes_never_sends(run: Run) -> None:
    async def test(bench: Bench) -> None:
        async with bench.runner() as runner:
            await runner.prepare(bench.planned(vus=4, duration="10m").order())
            runner.kill()
            await runner.ended

            _, lost = await bench.go(runner)

            assert lost is not None
            assert bench.counted() == 0

    run(test)


def test_a_run_reports_what_the_target_counted(run: Run) -> None:
    async def test(bench: Bench) -> None:
        planned = bench.planned(vus=4, iterations=30)

        summary = await LoadRun(planned.spec(), "run-1", clock=bench.clock, limits=HASTY, runner=bench.make).run()

        assert (summary.ended, summary.verdict) == ("finished", "passed")
        assert summary.requests == summary.iterations == bench.counted() == 30
        assert not any("do not add up" in reason for reason in summary.trust.reasons)

    run(test)


def test_a_load_that_continues_its_plan_makes_what_is_due_from_then_on(run: Run) -> None:
    async def test(bench: Bench) -> None:
        async with bench.runner() as runner:
            await runner.prepare(bench.planned(rate="40/s", duration="2s").order())

            reports, lost = await bench.go(runner, begin_s=1.0)

            assert lost is None
            assert bench.iterations == bench.counted() == 40
            assert sum(report.workflows["Shop"].account.arrivals for report in reports) == 40
            assert max(report.took for report in reports) == pytest.approx(1.0, abs=0.3)
            assert 9 <= len(bench.windows) <= 15

    run(test)


def test_a_load_that_continues_after_the_end_of_its_plan_ends_at_once(run: Run) -> None:
    async def test(bench: Bench) -> None:
        async with bench.runner() as runner:
            await runner.prepare(bench.planned(vus=4, duration="1s").order())

            reports, lost = await bench.go(runner, begin_s=1.5)

            assert lost is None
            assert bench.iterations == bench.counted() == 0
            assert [report.workflows["Shop"].nothing_left for report in reports] == [True, True]

    run(test)


def test_a_slice_makes_the_iterations_of_its_share_that_were_not_begun_before(run_slice: Run) -> None:
    async def test(bench: Bench) -> None:
        make = cast("MakeSliceRunner", bench.make)
        async with make(1, bench.windows.append, limits=HASTY, first=1, of=2) as runner:
            await runner.prepare(bench.planned(vus=5, iterations=100).order())

            # two of the five users are those of process 1 of two
            reports, lost = await bench.go(runner, done={"Shop": 11})

            assert lost is None
            assert bench.iterations == bench.counted() == 29
            assert [report.workflows["Shop"].iterations for report in reports] == [29]

    run_slice(test)


# only simulated ---------------------------------------------------------------------------------------


def simulated(folder: Path, *, kill: int | None = None, **options: Any) -> tuple[Summary, SimulatedTarget]:
    """A run in virtual time; one of its generators may be killed after 2.5 s."""

    async def main() -> tuple[Summary, SimulatedTarget]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        target, clock = SimulatedTarget(), LoopClock(loop)
        made: list[SimulatedRunner] = []

        def make(*given: Any, **named: Any) -> SimulatedRunner:
            made.append(SimulatedRunner(*given, **named, loop=loop, clock=clock, target=target))
            return made[0]

        planned = PlannedRun(written(folder, GET), LoadOptions(processes=3, **options))
        running = asyncio.ensure_future(LoadRun(planned.spec(), "run-1", clock=clock, runner=make).run())
        await asyncio.sleep(2.5)
        if kill is not None:
            made[0].generators[kill].kill()
        return await running, target

    return run_virtual(main())


def test_a_long_run_is_over_at_once_and_its_load_is_exact(tmp_path: Path) -> None:
    summary, target = simulated(tmp_path, rate="100/s", duration="10m")

    assert (summary.ended, summary.verdict, summary.requests) == ("finished", "passed", 60_000)
    assert summary.elapsed_s == pytest.approx(600, abs=0.2)
    assert target.total == 60_000
    assert set(target.calls.values()) == {10}
    assert summary.trust.ok, summary.trust.reasons


def test_a_generator_that_dies_ends_the_run_and_what_it_sent_is_counted(tmp_path: Path) -> None:
    summary, target = simulated(tmp_path, kill=1, rate="100/s", duration="1h")

    assert summary.ended.startswith("failed: generator 1 ended with signal 9, while it was under load")
    assert summary.requests == target.total == pytest.approx(130, abs=20)


def test_a_run_without_faults_is_the_same_again(tmp_path: Path) -> None:
    first, _ = simulated(tmp_path, vus=7, duration="20s")
    again, _ = simulated(tmp_path, vus=7, duration="20s")

    assert first.requests == 7 * 20 * 50
    assert first == again
