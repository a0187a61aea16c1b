"""The port for engine processes: the same suite on processes of this machine and on simulated ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mainstay.control import Control
from mainstay.stores import open_store
from mainstay.stores.memory import MemoryStore
from mainstay.testing import LoopClock, VirtualLoop, run_virtual
from mainstay.worker import Processes, ProcessHandle, WorkerOptions
from mainstay.worker.messages import Drain, EngineConfig, FromEngine, Hello, Pulsed, StartClaiming, Unfit
from mainstay.worker.program import load
from mainstay.worker.spawn import OsProcesses
from sim.processes import SimulatedProcesses
from tests.worker.crew_program import goes_on
from tests.worker.program import Stage

TARGET = "tests.worker.crew_program:stage"
NOT_AN_APP = "tests.worker.crew_program:goes_on"


class Bench:
    """The port under test, and a client of the store that its engines use."""

    def __init__(self, processes: Processes, control: Control) -> None:
        self.processes = processes
        self.control = control
        self.heard: list[FromEngine] = []

    def spawn(self, target: str = TARGET) -> ProcessHandle:
        options = WorkerOptions(target=target, name="w")
        config = EngineConfig(options=options, supervisor_pid=self.processes.pid)
        return self.processes.spawn(config, self.heard.append)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    async def up(self) -> ProcessHandle:
        """An engine that has sent its hello."""
        process = self.spawn()
        await self.until(lambda: self.heard)
        return process

    async def running(self) -> tuple[ProcessHandle, str]:
        """An engine that runs a job that goes on, and the job."""
        job_id = (await self.control.jobs.submit("goes_on", {})).id
        process = await self.up()
        process.send(StartClaiming())
        await self.until(process.recorder.running)
        return process, job_id


Run = Callable[[Callable[[Bench], Awaitable[None]]], None]


@pytest.fixture(params=["os", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    monkeypatch.setenv("CREW_STORE", url)

    async def on_this_machine(test: Callable[[Bench], Awaitable[None]]) -> None:
        store = await open_store(url)
        processes = OsProcesses()
        try:
            await test(Bench(processes, Control(store)))
        finally:
            processes.close()
            await store.close()

    async def in_simulation(test: Callable[[Bench], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        store = MemoryStore(LoopClock(loop))

        def program(config: EngineConfig) -> Stage:
            if config.options.target != TARGET:
                load(config.options.target)
            made = Stage("sim://store")
            made._control = Control(store, settings=made.settings, rng=random.Random(2))
            made.act(goes_on, "loop")
            return made

        processes = SimulatedProcesses(loop, "m1", program, rng=random.Random(1), state=tmp_path)
        await test(Bench(processes, Control(store, rng=random.Random(3))))

    if request.param == "os":
        return lambda test: asyncio.run(on_this_machine(test))
    return lambda test: run_virtual(in_simulation(test))


def test_an_engine_says_hello_and_ends_with_zero_when_it_is_drained(run: Run) -> None:
    async def test(bench: Bench) -> None:
        process = await bench.up()
        [hello] = bench.heard
        assert isinstance(hello, Hello)
        [session] = await bench.control.store.sessions()
        assert (session.id, session.pid, session.supervisor) == (hello.session, process.pid, bench.processes.pid)

        process.send(StartClaiming())
        process.send(Drain(5.0))

        assert await process.ended == 0
        process.close()

    run(test)


def test_the_marks_of_a_killed_engine_are_readable_until_it_is_closed(run: Run) -> None:
    async def test(bench: Bench) -> None:
        process, job_id = await bench.running()

        process.kill()

        assert await process.ended == -9
        assert [(mark.job_id, mark.token) for mark in process.recorder.running()] == [(job_id, 1)]
        # a second kill and a late message do nothing
        process.kill()
        process.send(Pulsed(session="", known=True))
        process.close()

    run(test)


def test_a_job_that_runs_lets_the_loop_of_its_engine_tick(run: Run) -> None:
    async def test(bench: Bench) -> None:
        process, _ = await bench.running()
        before = process.recorder.ticks

        await bench.until(lambda: process.recorder.ticks > before)

        process.send(Drain(0.0))
        assert await process.ended == 0
        assert process.recorder.running() == []
        process.close()

    run(test)


def test_an_engine_that_cannot_start_says_why_before_its_end_is_reported(run: Run) -> None:
    async def test(bench: Bench) -> None:
        process = bench.spawn(NOT_AN_APP)

        assert await process.ended == 2

        [unfit] = bench.heard
        assert isinstance(unfit, Unfit)
        assert "goes_on" in unfit.reason
        process.close()

    run(test)


def test_engines_have_processes_of_their_own(run: Run) -> None:
    async def test(bench: Bench) -> None:
        one, other = bench.spawn(), bench.spawn()
        await bench.until(lambda: len(bench.heard) == 2)

        one.kill()

        assert await one.ended == -9
        assert not other.ended.done()
        assert len({one.pid, other.pid, bench.processes.pid}) == 3
        other.kill()
        assert await other.ended == -9
        one.close()
        other.close()

    run(test)
