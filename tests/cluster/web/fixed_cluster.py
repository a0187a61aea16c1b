"""A cluster of a hundred nodes that only says what a test wants, with real runs in a store, served on a port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from mainstay.cluster.core_readings import CoreReadings
from mainstay.cluster.core_view import ClusterCores
from mainstay.cluster.status import ClusterStatus, JournalEntry, LeadInfo, ManagerInfo, NodeBeat, NodeInfo
from mainstay.cluster.web.side_server import SideServer
from mainstay.cluster.web.watch import ClusterWatch
from mainstay.load.handler import stored
from mainstay.load.stats.model import SliceReport
from mainstay.stores import open_store
from mainstay.web import WebOptions
from tests.load.placement.runs import Cluster
from tests.load.report.runs import a_header, a_summary

NODES, CORES, RUNS, NODES_OF_RUN = 100, 4, 20, 5


class FixedCluster:
    """A `ClusterReader` whose nodes are what the test has set."""

    def __init__(self, cluster: Cluster) -> None:
        self.runs: list[str] = []
        self._cluster = cluster
        self._nodes = {name: self._node(name) for name in cluster.nodes}
        self._cores = CoreReadings(cluster.store, lambda: list(self._nodes.values()))

    def _node(self, name: str, **beat: Any) -> NodeInfo:
        session = self._cluster.nodes[name].id
        now_ms = self._cluster.store.clock.now_ms()
        heard = NodeBeat(node=name, number=1, incarnation="i", sessions=(session,), cores=CORES, **beat)
        return NodeInfo(name=name, state="active", since_ms=now_ms, heard_ms=now_ms, beat=heard)

    def change(self, name: str, **fields: Any) -> None:
        """Have a node be in another state."""
        self._nodes[name] = msgspec.structs.replace(self._nodes[name], **fields)

    async def status(self) -> ClusterStatus:
        return ClusterStatus(
            cluster="shop",
            environment="live",
            at_ms=self._cluster.store.clock.now_ms(),
            manager="m1",
            managers=[ManagerInfo(name="m1", led=tuple(self.runs)), ManagerInfo(name="m2")],
            nodes=sorted(self._nodes.values(), key=lambda node: node.name),
            leads=[LeadInfo(name="placement", manager="m1", session="s", epoch=1)],
        )

    async def cores(self) -> ClusterCores:
        return await self._cores.read()

    async def journal(
        self, *, from_ms: int | None = None, until_ms: int | None = None, most: int = 50
    ) -> list[JournalEntry]:
        return []

    async def drain(self, node: str, *, by: str) -> bool:
        return node in self._nodes

    async def run_all(self) -> None:
        """Have all runs at work, each with numbers."""
        cluster = self._cluster
        while len(self.runs) < RUNS:
            self.runs.append(await cluster.submit(processes=NODES_OF_RUN * CORES, nodes=NODES_OF_RUN))
        await cluster.place()
        await cluster.confirm()
        while led := await cluster.claimed():
            await cluster.control.claims.start(led)
        for job_id in self.runs:
            await self.report(job_id, requests=1000)

    async def report(self, job_id: str, *, requests: int) -> None:
        """What the leader of a run saves on the way."""
        claims = self._cluster.control.claims
        names = await self._cluster.where(job_id)
        slices = [
            SliceReport(slice=number, token=1, node=name, processes=CORES, requests=requests)
            for number, name in enumerate(sorted(names))
        ]
        summary = a_summary(count=requests, header=a_header(token=0), slices=slices, verdict="running", ended="running")
        checkpoint = msgspec.msgpack.encode({"summary": msgspec.Raw(stored(summary)), "fleet": {}})
        await claims.report([claims.progress(await self._cluster.job(job_id), 1, 2, checkpoint=checkpoint)])


class ServedFixedCluster:
    """The cluster and its server, in the loop of another thread: the test itself drives a browser."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cluster: FixedCluster, watch: ClusterWatch, url: str) -> None:
        self.cluster = cluster
        self.url = url
        self._loop = loop
        self._watch = watch

    @property
    def runs(self) -> list[str]:
        return self.cluster.runs

    def change(self, name: str, **fields: Any) -> None:
        """Have a node be in another state, and the server see it."""

        def change() -> None:
            self.cluster.change(name, **fields)
            self._watch.nudge()

        self._loop.call_soon_threadsafe(change)

    def stop(self, over: asyncio.Event) -> None:
        self._loop.call_soon_threadsafe(over.set)

    def report(self, job_id: str, *, requests: int) -> None:
        asyncio.run_coroutine_threadsafe(self.cluster.report(job_id, requests=requests), self._loop).result()


@contextmanager
def fixed_cluster(folder: Path) -> Iterator[ServedFixedCluster]:
    """A hundred nodes and twenty runs at work on them."""
    served: Future[ServedFixedCluster] = Future()
    over = asyncio.Event()

    async def serve() -> None:
        try:
            store_url = f"sqlite:///{folder / 'jobs.db'}"
            store = await open_store(store_url)
            cluster = FixedCluster(await Cluster(store).open(*[CORES] * NODES))
            await cluster.run_all()
            watch = ClusterWatch(cluster, every_s=0.1)
            server = SideServer(WebOptions(port=0))

            @asynccontextmanager
            async def watched() -> AsyncIterator[ClusterWatch]:
                yield watch

            async with server.running({"main": store_url}, watched):
                served.set_result(ServedFixedCluster(asyncio.get_running_loop(), cluster, watch, server.url))
                await over.wait()
            await store.close()
        except BaseException as error:
            if not served.done():
                served.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="fixed cluster")
    thread.start()
    try:
        found = served.result(120)
        yield found
    finally:
        if served.done() and served.exception() is None:
            served.result().stop(over)
        thread.join()


__all__ = ["CORES", "NODES", "NODES_OF_RUN", "RUNS", "ServedFixedCluster", "fixed_cluster"]
