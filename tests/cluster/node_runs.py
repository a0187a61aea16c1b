"""Runs on the nodes of a real cluster, as tests submit and look at them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mainstay import App
from mainstay.load import FleetDemand, LoadOptions
from mainstay.load.cluster_run import place_of_cluster
from mainstay.load.handler import summary_of
from mainstay.load.sources import LoadTest
from mainstay.load.stats.model import Summary
from mainstay.model import Job
from mainstay.stores import Query
from mainstay.task import Handle, Sealer
from tests.cluster.load_target import LoadTarget
from tests.cluster.local_clusters import RunningCluster, until


class NodeRun:
    """One run, and the target that counts its requests."""

    def __init__(self, cluster: RunningCluster, target: LoadTarget, handle: Handle[Summary]) -> None:
        self.id = handle.id
        self.target = target
        self.handle = handle
        self._cluster = cluster

    async def row(self) -> Job:
        [row] = await self._cluster.rows([self.id])
        return row

    async def units(self) -> list[Job]:
        """The rows of its slices, by number."""
        store = self._cluster.store
        return sorted((await store.find(Query(parent=self.id), limit=100)).jobs, key=lambda row: row.id)

    async def loads_from(self, processes: int) -> set[int]:
        """The generators, as soon as this number of them has sent requests that were answered."""

        async def look() -> set[int] | None:
            found = self.target.by_pid()
            return set(found) if len(found) >= processes else None

        return await until(look)

    async def sends(self, requests: int) -> None:
        """Return when the target has answered so many more."""
        before = self.target.total

        async def look() -> bool | None:
            return self.target.total >= before + requests or None

        await until(look)

    async def reported_anew(self) -> None:
        """Return when the summary that is saved with the job has all that the target has counted by now: its leader
        has heard of all slices."""
        counted = self.target.total

        async def look() -> bool | None:
            found = summary_of(await self.row(), Sealer(None))
            return (found is not None and found.requests >= counted) or None

        await until(look)

    async def cancelled(self) -> Summary:
        """Its summary, after a cancel through the managers."""
        await self.handle.cancel()
        return await self.ended()

    async def ended(self) -> Summary:
        await self._cluster.settled([self.id])
        found = summary_of(await self.row(), Sealer(None))
        assert found is not None
        return found


@asynccontextmanager
async def node_run(
    cluster: RunningCluster, test: LoadTest, target: LoadTarget, demand: FleetDemand, **options: Any
) -> AsyncIterator[NodeRun]:
    """A submitted run; it is cancelled at the end if it is not over."""
    target.reset()
    app = App(place_of_cluster(cluster.file.url))
    app.load(test)
    async with app:
        load = LoadOptions(**{"base_url": target.url, **options})
        run = NodeRun(cluster, target, await app.submit_load(test, load, nodes=demand))
        try:
            yield run
        finally:
            if (await run.row()).settled_ms is None:
                await run.handle.cancel()
                await cluster.settled([run.id])


def assert_nothing_was_lost(found: Summary, target: LoadTarget) -> None:
    """Each slice has one report, and the reports of all nodes are what their generators have sent."""
    assert [report for report in found.slices if report.loss] == []
    assert len({report.node for report in found.slices}) == len(found.slices)
    assert sorted(report.requests for report in found.slices) == sorted(target.by_pid().values())
    assert not any("add up" in reason for reason in found.trust.reasons), found.trust.reasons
