"""A real supervisor with two simulated engine processes, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mainstay import App
from mainstay.control import Control
from mainstay.model import Job
from mainstay.stores import JobStore, StoreProxy
from mainstay.stores.memory import MemoryStore
from mainstay.task.connection import StoreConnection
from mainstay.testing import LoopClock, VirtualLoop, run_virtual
from mainstay.worker import STOPPED, UNFIT, Program, Supervisor, WorkerOptions
from mainstay.worker.messages import EngineConfig
from mainstay.worker.supervisor import FORCED
from sim.processes import SimulatedProcess, SimulatedProcesses

URL = "sim://store"


class SharedStore(StoreProxy):
    """One process's view of a store that stays open for the others."""

    async def close(self) -> None: ...


class Machine:
    """A worker on a simulated machine, and a client of the same store."""

    def __init__(self, state: Path, *, processes: int = 2, grace_s: float = 10.0, seed: int = 1) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.seed = seed
        self.store = MemoryStore(LoopClock(loop))
        self.control = Control(self.store, rng=random.Random(f"{seed} client"))
        self.starts: list[float] = []
        self.refuses_to_load = False
        self.engines = SimulatedProcesses(loop, "m1", self.load, rng=random.Random(f"{seed} engines"), state=state)
        self.supervisor = Supervisor(
            WorkerOptions(target="sim:app", name="w1", processes=processes, concurrency=4, grace_s=grace_s),
            processes=self.engines,
            connect=self.connect,
            state=state,
            rng=random.Random(f"{seed} supervisor"),
        )
        self.host = loop.host("m1")
        self.running = self.host.start(self.supervisor.run())

    async def connect(self, url: str) -> JobStore:
        assert url == URL
        return SharedStore(self.store)

    def load(self, config: EngineConfig) -> Program:
        self.starts.append(self.loop.time())
        rng = random.Random(f"{self.seed} {len(self.starts)}")
        app = App(URL, rng=rng)

        async def connect() -> Control:
            return Control(SharedStore(self.store), settings=app.settings, rng=rng)

        app.client.connection = StoreConnection(connect)
        if self.refuses_to_load:
            return app  # without a task

        @app.task(name="takes")
        async def takes(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "done"

        @app.task(name="clings")
        async def clings(seconds: float) -> str:
            end_s = self.loop.time() + seconds
            while (left_s := end_s - self.loop.time()) > 0:
                try:
                    await asyncio.sleep(left_s)
                except asyncio.CancelledError:
                    continue
            return "done"

        @app.task(name="exits")
        async def exits() -> None:
            (own,) = [process for process in self.engines.running if process.recorder.running()]
            await own.leave(3)

        return app

    async def submit(self, name: str, seconds: float | None = None, **options: Any) -> str:
        payload = {} if seconds is None else {"seconds": seconds}
        return (await self.control.jobs.submit(name, payload, **options)).id

    async def job(self, job_id: str) -> Job:
        return await self.control.jobs.get(job_id)

    async def until(self, condition: Callable[[], Awaitable[object]]) -> None:
        while not await condition():
            await asyncio.sleep(0.01)

    async def until_started(self, job_id: str) -> SimulatedProcess:
        """The process that runs it, once the store has its start mark."""

        async def started() -> bool:
            return (await self.job(job_id)).started_ms is not None

        await self.until(started)
        return next(
            process
            for process in self.engines.running
            if job_id in [entry.job_id for entry in process.recorder.running()]
        )

    async def until_sessions(self, number: int) -> None:
        async def open_sessions() -> bool:
            return len(await self.store.sessions()) == number

        await self.until(open_sessions)

    async def stop(self) -> int:
        self.supervisor.stop()
        return await self.running


def simulated(main: Callable[[], Awaitable[None]], *, seed: int = 1) -> None:
    async def run() -> None:
        await main()

    run_virtual(run(), seed=seed)


def test_the_jobs_of_a_killed_engine_are_settled_at_once_and_another_takes_its_place(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path)
        job_id = await machine.submit("takes", 5)
        await machine.until_sessions(2)
        killed = await machine.until_started(job_id)
        at_s = machine.loop.time()

        killed.kill()

        async def counted() -> bool:
            return (await machine.job(job_id)).crashes == 1

        await machine.until(counted)
        # far below the lease: the supervisor saw the process end
        assert machine.loop.time() - at_s < 0.1
        done = await machine.control.jobs.wait(job_id)
        assert (done.status, done.token, done.crashes, done.losses) == ("succeeded", 2, 1, 0)
        await machine.until_sessions(2)
        assert len(machine.engines.all) == 3
        assert killed.ended.result() == -9
        assert await machine.stop() == STOPPED
        assert await machine.store.sessions() == []
        assert machine.engines.running == []

    simulated(main)


def test_an_engine_that_a_job_ends_again_and_again_is_started_ever_more_slowly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, processes=1)
        machine.engines.start_s = 0.0
        job_id = await machine.submit("exits", retries=0, crash_budget=4)

        job = await machine.control.jobs.wait(job_id)

        assert (job.status, job.crashes) == ("quarantined", 4)
        assert job.error is not None
        assert job.error.message == "its engine exited with code 3 while it ran this"
        waits = [round(later - before, 2) for before, later in zip(machine.starts, machine.starts[1:], strict=False)]
        assert [wait_s >= 0.1 * 2**number for number, wait_s in enumerate(waits)] == [True] * len(waits)
        assert len(waits) == 3
        assert await machine.stop() == STOPPED

    simulated(main)


def test_a_start_that_the_system_refuses_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, processes=1)
        machine.engines.refused = 2
        await machine.until_sessions(1)
        assert await machine.stop() == STOPPED

    simulated(main)
    assert caplog.text.count("engine cannot be started: [Errno 11]") == 2


def test_a_program_without_work_ends_the_worker(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path)
        machine.refuses_to_load = True
        assert await machine.running == UNFIT
        assert machine.engines.running == []

    simulated(main)


def test_a_drain_waits_for_the_jobs_within_the_grace(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, grace_s=10)
        job_id = await machine.submit("takes", 5)
        await machine.until_started(job_id)

        assert await machine.stop() == STOPPED

        done = await machine.job(job_id)
        assert (done.status, done.token) == ("succeeded", 1)

    simulated(main)


def test_a_second_request_gives_the_jobs_back_now(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, grace_s=3600)
        job_id = await machine.submit("takes", 600)
        await machine.until_started(job_id)
        machine.supervisor.stop()
        await asyncio.sleep(5)
        assert not machine.running.done()
        at_s = machine.loop.time()

        assert await machine.stop() == STOPPED

        assert machine.loop.time() - at_s < 1
        job = await machine.job(job_id)
        assert (job.status, job.releases, job.crashes) == ("pending", 1, 0)

    simulated(main)


def test_a_third_request_kills_what_does_not_stop(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, grace_s=3600)
        job_id = await machine.submit("clings", 600)
        engine = await machine.until_started(job_id)
        machine.supervisor.stop()
        await asyncio.sleep(1)
        machine.supervisor.stop()
        await asyncio.sleep(1)
        assert not engine.ended.done()

        assert await machine.stop() == FORCED

        job = await machine.job(job_id)
        assert (job.status, job.releases, job.crashes) == ("pending", 1, 0)
        assert engine.ended.result() == -9

    simulated(main)


def test_a_job_that_would_not_stop_is_left_behind_and_its_engine_exits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, grace_s=1)
        job_id = await machine.submit("clings", 600)
        await machine.until_started(job_id)

        assert await machine.stop() == STOPPED

        assert (await machine.job(job_id)).status == "pending"

    simulated(main)
    assert "exits with jobs that would not stop n=1" in caplog.text


def test_a_stopped_engine_with_an_overdue_job_is_killed_for_that_job(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path)
        job_id = await machine.submit("takes", 60, timeout="5s", grace="1s", retries=0)
        engine = await machine.until_started(job_id)

        engine.host.freeze()

        job = await machine.control.jobs.wait(job_id)
        assert job.error is not None
        assert (job.status, job.error.code, job.crashes) == ("quarantined", "run_timeout", 0)
        assert await engine.ended == -9
        assert await machine.stop() == STOPPED

    simulated(main)


def test_engines_die_with_their_supervisor_and_a_sweep_of_the_next_finds_their_jobs(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path)
        job_id = await machine.submit("takes", 5)
        await machine.until_started(job_id)

        machine.engines.crash()
        machine.host.crash()

        other = Machine(tmp_path, seed=2)
        other.store = machine.store
        job = await machine.control.jobs.wait(job_id)
        assert (job.status, job.token, job.losses + job.crashes) == ("succeeded", 2, 1)
        assert await other.stop() == STOPPED

    simulated(main)


def test_a_seed_gives_the_same_history_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mainstay.worker")

    def history(seed: int) -> list[str]:
        caplog.clear()

        async def main() -> None:
            machine = Machine(tmp_path, seed=seed)
            ids = [await machine.submit("takes", seconds) for seconds in (5, 3, 1, 0.2)]
            (await machine.until_started(ids[0])).kill()
            for job_id in ids:
                await machine.control.jobs.wait(job_id)
            await machine.stop()
            caplog.records[0].msg = f"{machine.loop.steps} {machine.loop.time()}"
            caplog.records[0].args = ()

        simulated(main, seed=seed)
        return [record.getMessage() for record in caplog.records]

    first = history(3)
    assert len(first) > 5
    assert first == history(3)
    assert first != history(4)
