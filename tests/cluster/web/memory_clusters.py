"""Real managers on a store and a bus in memory, a server of their cluster, and nodes that a test speaks for."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from mainstay.bundles import BundleClient
from mainstay.bus import MemoryBusNetwork
from mainstay.cluster.cluster_service import ClusterClient
from mainstay.cluster.manager import Manager, ManagerOptions
from mainstay.cluster.manager_load import LoadSample
from mainstay.cluster.status import ClusterStatus, NodeBeat
from mainstay.cluster.web.watch import ClusterWatch
from mainstay.control import Control
from mainstay.model import Offer, Session
from mainstay.outputs import Blobs, open_blobs
from mainstay.testing import MemoryStore
from tests.web.conftest import Server, serving

EVERY_S = 0.02


class MemoryCluster:
    """A cluster in this process."""

    def __init__(self, blobs: Blobs | None = None) -> None:
        self.blobs = blobs
        self.store = MemoryStore()
        self.network = MemoryBusNetwork()
        self.control = Control(self.store)
        self.client = ClusterClient(self.network.client("operator.local"), name="local", cluster="local")
        self.managers: dict[str, Manager] = {}
        self._numbers: dict[str, int] = {}
        #: of its managers, whatever this machine does
        self.load = LoadSample(0.0, 0.0, 0.0)

    async def start_manager(self, name: str) -> Manager:
        bus = self.network.client(f"manager.{name}")
        # each manager in a test has dice of its own
        options, rng = ManagerOptions(name=name), random.Random(name)
        manager = Manager(
            self.store, bus, options, blobs=self.blobs, rng=rng, host="box", pid=1, sample_load=lambda _: self.load
        )
        self.managers[name] = manager
        await manager.start()
        return manager

    async def stop_manager(self, name: str) -> None:
        await self.managers.pop(name).stop()

    async def stop(self) -> None:
        for name in list(self.managers):
            await self.stop_manager(name)

    async def open_session(self, node: str, *, queue: str = "default", task: str = "send") -> Session:
        """A session of a node in the store, which claims jobs of one task."""
        session = Session(
            id=f"{node}.{'0' * 31}1",
            worker=node,
            host=f"host-of-{node}",
            standing=True,
            started_ms=self.store.clock.now_ms(),
            beat_ms=self.store.clock.lease_ms(),
            offer=Offer(queues=(queue,), tasks={task: {}}),
        )
        await self.store.open_session(session)
        return session

    async def beat(self, node: str, **fields: Any) -> None:
        """A heartbeat of a node."""
        number = self._numbers[node] = self._numbers.get(node, 0) + 1
        values: Mapping[str, Any] = {"incarnation": "a", "cores": 4, "host": f"host-of-{node}", **fields}
        beat = NodeBeat(node=node, number=number, **values)
        await self.network.client(f"node.{node}").publish(f"control.beat.{node}", msgspec.msgpack.encode(beat))

    def hang_up(self, node: str) -> None:
        """Close the connections of a node, as when its machine is gone."""
        self.network.disconnect(f"node.{node}")


@contextlib.asynccontextmanager
async def memory_cluster(*managers: str) -> AsyncIterator[MemoryCluster]:
    cluster = MemoryCluster(await open_blobs("memory:"))
    try:
        for name in managers or ("m1", "m2"):
            await cluster.start_manager(name)
        yield cluster
    finally:
        await cluster.stop()


@contextlib.asynccontextmanager
async def served_cluster(*managers: str, **options: Any) -> AsyncIterator[tuple[MemoryCluster, Server, ClusterWatch]]:
    """A cluster and a server of it."""
    async with memory_cluster(*managers) as cluster:
        bus = cluster.network.client("operator.server")
        bundles = BundleClient(bus, role="operator", name="server", cluster="local", environment="default")
        watch = ClusterWatch(cluster.client, bundles=bundles, every_s=EVERY_S, rng=random.Random(1))
        async with serving(store=cluster.store, cluster=watch, **{"snapshot_s": 0.02, **options}) as server:
            yield cluster, server, watch


async def seen(watch: ClusterWatch, fits: Any) -> ClusterStatus:
    """The first status that fits, as the server sees it."""
    with watch.watching():
        while True:
            changed = watch.changed
            if watch.status is not None and not watch.error and fits(watch.status):
                return watch.status
            await changed.wait()


async def failed(watch: ClusterWatch) -> str:
    """The error of the first read that fails."""
    with watch.watching():
        while not watch.error:
            changed = watch.changed
            await changed.wait()
    return watch.error


def states(status: ClusterStatus) -> dict[str, str]:
    return {node.name: node.state for node in status.nodes}


def is_led(status: ClusterStatus) -> bool:
    return {lead.name for lead in status.leads if lead.manager} == {"leader", "placement"}
