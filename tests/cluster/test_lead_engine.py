"""The engine of a manager: it leads runs, and whatever happens to it, the runs go on with another one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from mainstay.bus import Admission, MemoryBusNetwork
from mainstay.cluster import lead_engine, lead_program
from mainstay.cluster.lead_engine import LeadEngine
from mainstay.control import Control, JobRequest, OptionReader
from mainstay.errors import MissingExtra
from mainstay.load.fleet.fleet_work import FleetWork
from mainstay.load.fleet.spec import CoreDemand, FleetOptions
from mainstay.load.kind import KIND
from mainstay.load.placement import RunPlacementDuty
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.model import LEAD_QUEUE, Job, Settings
from mainstay.stores import Query
from mainstay.testing import FaultyStore, LoopClock, MemoryStore, StoreFaults, VirtualLoop, run_virtual
from mainstay.worker import LeadHost
from tests.load.placement.runs import Cluster
from tests.load.trials import GET, written


class OneManager:
    """The engine of one manager, on a store that may be away."""

    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.behind = Control(MemoryStore(clock=LoopClock(loop)))
        self.link = FaultyStore(self.behind.store, rng=random.Random(1))
        bus = MemoryBusNetwork().client("manager.m1")
        host = LeadHost(
            control=Control(self.link, rng=random.Random(2)),
            bus=bus,
            data_bus=bus,
            admission=Admission(),
            folder=lambda: folder,
            rng=random.Random(3),
        )
        self.engine = LeadEngine(host, worker="m1", machine="here", pid=0)
        self._planned = PlannedRun(written(folder, GET), LoadOptions(processes=1, vus=1, duration="5s"))

    async def submit(self) -> str:
        options = FleetOptions(
            **msgspec.structs.asdict(self._planned.options),
            demand=CoreDemand(processes=1),
            spec=self._planned.spec(),
        )
        plan = msgspec.structs.replace(OptionReader(Settings()).read({"retries": 0}), kind=KIND.name, queue=LEAD_QUEUE)
        payload = msgspec.Raw(msgspec.msgpack.encode(options))
        return (await self.behind.jobs.submit_request(JobRequest("shop", payload, plan))).id

    async def job(self, job_id: str) -> Job:
        return await self.behind.jobs.get(job_id)


def with_manager(folder: Path, test: Callable[[OneManager], Awaitable[None]]) -> None:
    async def main() -> None:
        manager = OneManager(folder)
        try:
            await test(manager)
        finally:
            manager.link.faults = StoreFaults()
            await manager.engine.stop()
            await manager.link.close()

    run_virtual(main())


def test_a_store_that_does_not_answer_for_a_while_fails_no_run(tmp_path: Path) -> None:
    async def test(manager: OneManager) -> None:
        await manager.engine.start()
        manager.link.faults = StoreFaults(unavailable=True, calls=("find", "report"))
        job_id = await manager.submit()
        await asyncio.sleep(5)
        assert (await manager.job(job_id)).failures == 0

        manager.link.faults = StoreFaults()
        await asyncio.sleep(5)

        job = await manager.job(job_id)
        assert (job.status, job.awaits_cores, job.failures) == ("pending", True, 0)

    with_manager(tmp_path, test)


def test_an_engine_stops_although_the_store_does_not_answer(tmp_path: Path) -> None:
    async def test(manager: OneManager) -> None:
        await manager.engine.start()
        manager.link.faults = StoreFaults(unavailable=True, calls=("find",))
        await manager.submit()
        while not manager.engine.leads:
            await asyncio.sleep(0.1)
        manager.link.faults = StoreFaults(unavailable=True)

        async with asyncio.timeout(15):
            await manager.engine.stop()

    with_manager(tmp_path, test)


def test_an_engine_that_a_run_would_not_leave_is_replaced_once_the_store_answers(tmp_path: Path) -> None:
    async def test(manager: OneManager) -> None:
        await manager.engine.start()
        manager.link.faults = StoreFaults(unavailable=True)
        manager.engine._retire("a run would not stop")
        await asyncio.sleep(20)
        manager.link.faults = StoreFaults()
        job_id = await manager.submit()
        await asyncio.sleep(10)

        assert (await manager.job(job_id)).awaits_cores

    with_manager(tmp_path, test)


def test_a_run_whose_node_goes_away_before_its_slice_is_assigned_waits_again_and_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader waits for the slice; it lets go when the placement leader takes the job from it."""

    async def test(manager: OneManager) -> None:
        await manager.engine.start()
        job_id = await manager.submit()
        cluster = await Cluster(manager.behind.store).open()
        node = await cluster.node("n1", 1, standing=True)
        while not (await manager.job(job_id)).awaits_cores:
            await asyncio.sleep(0.1)
        with monkeypatch.context() as patched:
            patched.setattr("mainstay.load.placement.duty._MOST_STEPS", 1)
            await cluster.place()
        while (await manager.job(job_id)).status != "running":
            await asyncio.sleep(0.1)
        await node.die()
        cluster.duty = RunPlacementDuty(cluster.control)
        await cluster.place()
        await asyncio.sleep(600)

        job = await manager.job(job_id)
        assert (job.status, job.awaits_cores, job.failures) == ("pending", True, 0)
        assert manager.engine.leads == []

    with_manager(tmp_path, test)


def test_a_manager_is_stopped_while_its_engine_is_replaced(tmp_path: Path) -> None:
    async def test(manager: OneManager) -> None:
        await manager.engine.start()
        manager.engine._retire("a run would not stop")
        await asyncio.sleep(0)
        await manager.engine.stop()
        assert [session.id for session in await manager.behind.store.sessions() if not session.dead] == []

    with_manager(tmp_path, test)


def test_a_manager_leads_some_runs_at_a_time_and_leaves_the_others_to_its_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lead_engine, "AT_ONCE", 2)

    async def test(manager: OneManager) -> None:
        monkeypatch.setattr(FleetWork, "call", lambda *_: asyncio.Event().wait())
        for _ in range(5):
            await manager.submit()
        await manager.engine.start()
        await asyncio.sleep(20)
        assert len(manager.engine.leads) == 2
        rows = (await manager.behind.store.find(Query(queue=LEAD_QUEUE))).jobs
        assert sum(row.session is None for row in rows) == 3

    with_manager(tmp_path, test)


def test_a_manager_without_the_extra_of_load_tests_claims_no_run_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim would only put the run off, for up to ten minutes, while other managers could lead it."""

    def missing(target: str) -> None:
        raise MissingExtra("load", "a load test needs numpy, which is not installed; run: pip install 'mainstay[load]'")

    monkeypatch.setattr(lead_program, "part", missing)

    async def test(manager: OneManager) -> None:
        await manager.engine.start()
        job_id = await manager.submit()
        await asyncio.sleep(5)

        job = await manager.job(job_id)
        assert (job.status, job.token) == ("pending", 0)
        assert manager.engine.problem.startswith("manager m1 leads no jobs: load: a load test needs numpy")
        assert await manager.behind.store.sessions() == []

    with_manager(tmp_path, test)
