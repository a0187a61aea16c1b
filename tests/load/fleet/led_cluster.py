"""A cluster in this process whose manager only pretends to lead: what a command and a script see of a run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from mainstay import App
from mainstay.clock import SystemClock
from mainstay.control import Control
from mainstay.errors import StoreClosed
from mainstay.load import LoadTest
from mainstay.load.stats.model import SliceReport, Summary
from mainstay.model import Job
from mainstay.stores import Query
from mainstay.task.connection import StoreConnection
from tests.load.cli.moments import header, moments
from tests.load.fleet.small_cluster import SmallCluster, small_cluster
from tests.load.fleet.test_follower import Leader

HEADER = header("browse")
MOMENTS = list(moments(HEADER, seconds=1.0))
SLICES = [
    SliceReport(slice=0, node="n1", processes=4, requests=60, failed=0, windows=10, clock_doubt_s=0.0002),
    SliceReport(slice=1, node="n2", processes=4, requests=40, failed=1, windows=7, loss="its node was closed", gap_s=3),
]


def summary(**more: Any) -> Summary:
    values = {
        "requests": 100,
        "failed": 1,
        "rate": 10.0,
        "iterations": 100,
        "users": 5,
        "slices": SLICES,
        "stream": "/srv/m1/run.ndjson",
        **more,
    }
    return Summary(header=HEADER, elapsed_s=1.0, **values)


async def submitted(cluster: SmallCluster) -> Job:
    """The job, once it is there."""
    while not (found := (await cluster.behind.store.find(Query())).jobs):
        await asyncio.sleep(0.01)
    return found[0]


async def lead(cluster: SmallCluster) -> None:
    """Lead the run to its end."""
    leader = Leader(cluster, await submitted(cluster))
    await leader.claim()
    await asyncio.sleep(0.1)
    await leader.live.start(HEADER)
    for moment in MOMENTS:
        leader.live.add(moment)
    await leader.complete(summary())
    await leader.live.stop(summary())


class LedCluster:
    """Makes apps whose store is behind the manager of a new cluster."""

    def __init__(self) -> None:
        self.nodes = ["n1"]
        self.lead: Callable[[SmallCluster], Awaitable[None]] = lead
        self.jobs: list[Job] = []
        self.failure: BaseException | None = None
        self._clusters = contextlib.AsyncExitStack()
        """they end with the loop of the command"""

    def app_of(self, test: LoadTest, store: str) -> App:
        app = App(store)
        app.load(test)
        app.client.connection = StoreConnection(self._connect)
        return app

    async def _connect(self) -> Control:
        cluster = await self._clusters.enter_async_context(small_cluster(clock=SystemClock()))
        for node in self.nodes:
            await cluster.join(node)
        self.leading_task = asyncio.get_running_loop().create_task(self._leading(cluster))
        return cluster.control

    async def _leading(self, cluster: SmallCluster) -> None:
        try:
            self.jobs.append(await submitted(cluster))
            await self.lead(cluster)
        except StoreClosed:
            pass  # the command has ended
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.failure = error
