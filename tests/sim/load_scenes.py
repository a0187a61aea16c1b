"""A simulated cluster that runs load tests, for scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mainstay.control.check import check
from mainstay.lifecycle import Event
from mainstay.load.fleet.spec import SLICE, SliceCall
from mainstay.load.stats.model import SliceReport, Summary
from mainstay.model import Job
from mainstay.stores.remote import MAINSTAY_VERSION
from mainstay.testing import BusFaults, SimulatedHost, VirtualLoop
from sim.bus_weather import BusWeather
from sim.load_cluster import LoadClusterWorld
from sim.load_ledger import SliceKey
from sim.load_plans import fleet_options, load_request
from sim.run_places import RunPlace
from tests.sim.cluster_scenes import ClusterScene, play_in


class LoadScene(ClusterScene, LoadClusterWorld):
    """Three managers and four nodes with four cores each, and a script."""

    def __init__(self, loop: VirtualLoop, folder: Path, seed: int) -> None:
        self.watchers: list[Callable[[Job], None]] = []
        """called with each row that is written"""
        super().__init__(loop, folder, seed)
        self.faulty = True
        self.version = MAINSTAY_VERSION
        self.weather = BusWeather(self.network, self.host_names(), BusFaults(latency_s=0.001, jitter_s=0.002))

    def _check_write(self, before: Job | None, after: Job, events: Sequence[Event]) -> None:
        super()._check_write(before, after, events)
        for watch in self.watchers:
            watch(after)

    async def submit_run(
        self,
        *,
        on_loss: str = "replace",
        layers: int = 1,
        demand: Any = None,
        job: dict[str, Any] | None = None,
        **options: Any,
    ) -> str:
        """Submit a load test: by default with 40 arrivals a second, on four nodes with a core each. `job` has options
        of the job."""
        given = {"rate": "40/s", "max_in_flight": 16, **options} if "vus" not in options else options
        wanted = {"nodes": 4, "processes": 4} if demand is None else demand
        made = fleet_options(layers=layers, on_loss=on_loss, demand=wanted, **given)
        return (await self.control.jobs.submit_request(load_request(self.control, made, **(job or {})))).id

    async def run_under_load(self, **options: Any) -> str:
        """Submit a load test, and wait until all of its processes are under load."""
        job = await self.submit_run(**options)
        await self.until_loaded(job)
        return job

    async def until_loaded(self, job: str, *, within_s: float = 100.0) -> float:
        """Wait until all processes of a run are under load; returns after how many seconds they were."""

        def loaded() -> bool:
            cores = sum(self.call_of(row).cores for row in self.slices(job))
            return 0 < cores == len(self.loads(job))

        return await self.until(loaded, within_s=within_s)

    def loads(self, job: str) -> list[RunPlace]:
        """The generator processes of a run that are under load now."""
        works = [work for work in self.places.works() if work.startswith(f"{job} process ")]
        return [each for work in works for each in self.places.of(work) if not each.host.frozen]

    def slices(self, job: str) -> list[Job]:
        """The rows of the slices of the newest round."""
        rows = [row for row in self.store._rows.jobs.values() if row.parent == job and row.name == SLICE]
        newest = max((self.call_of(row).round for row in rows), default=0)
        return sorted((row for row in rows if self.call_of(row).round == newest), key=lambda row: row.unit or "")

    def call_of(self, row: Job) -> SliceCall:
        return msgspec.msgpack.decode(row.payload, type=SliceCall)

    def node_with(self, row: Job) -> str:
        """The node whose session has a slice."""
        session = self.store._sessions.get(row.session or "")
        return "" if session is None else session.node

    def slice_on(self, job: str, node: str) -> int:
        """The number of the slice that runs on a node."""
        return next(self.call_of(row).number for row in self.slices(job) if self.node_with(row) == node)

    def engine_of(self, node: str) -> SimulatedHost:
        worker = self.node_machines[node].worker
        assert worker is not None
        return worker.processes.running[0].host

    def sent_by(self, job: str, *, number: int, token: int) -> int:
        """What the target has counted of an assignment of the first round."""
        made = self.ledgers[job].assignments.get(SliceKey(1, number, token))
        return 0 if made is None else made.total

    async def finished(self, *ids: str) -> Sequence[Summary]:
        """Wait until these runs have ended. They must have succeeded, with exact totals, and left nothing."""
        rows = await self.settled(*ids)
        for row in rows:
            assert row.status == "succeeded", f"{row.status}: {row.reason} {row.error}"
            self.check_totals(row)
        await self.all_left()
        return [msgspec.msgpack.decode(row.result or b"", type=Summary) for row in rows]

    async def all_left(self) -> None:
        """All runs have ended: nothing of them is left, and the store is as it should be."""
        await self.check_nothing_left()
        report = await check(self.store)
        assert report.clean, report.remaining

    async def is_replaced(self, job: str, number: int, token: int = 1) -> float:
        """Wait until a slice is under load again; returns after how many seconds it was."""

        def loads_again() -> bool:
            return any(key.number == number and key.token > token and made.total for key, made in self._made(job))

        return await self.until(loads_again, within_s=60)

    def _made(self, job: str) -> list[tuple[SliceKey, Any]]:
        return list(self.ledgers[job].assignments.items())


def lost_parts(summary: Summary) -> list[SliceReport]:
    """The assignments that were lost."""
    return [one for one in summary.slices if one.loss]


__all__ = ["LoadScene", "lost_parts", "play_in"]
