"""A cluster for a benchmark: one bus, one manager and some nodes of one core each, beside code that is not async."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from mainstay.cluster.address import parse_address
from mainstay.cluster.cluster_service import ClusterClient
from mainstay.cluster.local_cluster import LocalCluster, LocalClusterOptions
from mainstay.model import Job
from mainstay.stores import open_store

T = TypeVar("T")
_TARGET = "mainstay.cluster.hello:app"
_PATIENCE_S = 60.0


class NodesNotReady(Exception):
    """The nodes did not begin to work in time."""


class LocalNodes:
    """A running cluster. `local_nodes` starts it."""

    def __init__(self, cluster: LocalCluster, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster = cluster
        self._loop = loop

    @property
    def url(self) -> str:
        """Its address for operators."""
        return self._cluster.file.url

    def roots(self) -> dict[str, list[int]]:
        """By role: the processes that it is made of, without those that they started."""
        found: dict[str, list[int]] = {}
        for process in self._cluster.file.processes:
            found.setdefault(process.role, []).append(process.pid)
        return found

    def node_pids(self) -> dict[str, int]:
        """By node: its first process."""
        return {process.name: process.pid for process in self._cluster.file.processes if process.role == "node"}

    def job(self, job_id: str) -> Job:
        """The row of a job."""
        return self._wait(self._job(job_id))

    async def _job(self, job_id: str) -> Job:
        store = await open_store(self._cluster.file.store)
        try:
            [row] = await store.get([job_id])
        finally:
            await store.close()
        assert row is not None
        return row

    def wait_until_ready(self, nodes: int) -> None:
        """Until this number of nodes works. Raises `NodesNotReady`."""
        try:
            self._wait(self._ready(nodes))
        except TimeoutError:
            raise NodesNotReady(f"fewer than {nodes} nodes worked after {_PATIENCE_S:.0f} s") from None

    async def _ready(self, nodes: int) -> None:
        file = self._cluster.file
        async with asyncio.timeout(_PATIENCE_S):
            bus = await parse_address(file.url).connect("operator", "bench", timeout_s=10)
            try:
                client = ClusterClient(bus, name="bench", cluster=file.cluster)
                while True:
                    status = await client.status()
                    working = [node for node in status.nodes if node.state == "active" and len(node.beat.sessions) > 1]
                    if len(working) >= nodes:
                        return
                    await asyncio.sleep(0.1)
            finally:
                await bus.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextlib.contextmanager
def local_nodes(folder: Path, nodes: int, *, log_level: str = "error") -> Iterator[LocalNodes]:
    """Start a cluster, wait until its nodes work, and stop it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    options = LocalClusterOptions(
        folder=folder, target=_TARGET, managers=1, nodes=nodes, cores=1, grace_s=2.0, log_level=log_level
    )
    cluster = LocalCluster(options)
    loop = asyncio.new_event_loop()
    # it starts again what ends, and takes what its processes say, all the time
    thread = threading.Thread(target=loop.run_forever, name="cluster")
    thread.start()
    try:
        try:
            asyncio.run_coroutine_threadsafe(cluster.start(), loop).result()
            running = LocalNodes(cluster, loop)
            running.wait_until_ready(nodes)
            yield running
        finally:
            asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
