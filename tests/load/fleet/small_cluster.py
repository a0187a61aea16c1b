"""A store in memory behind a manager that keeps bundles, and an operator in front of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

from mainstay.bundles import BundleLimits, BundleService, BundleStorage
from mainstay.bus import MemoryBusNetwork
from mainstay.clock import Clock
from mainstay.control import Control
from mainstay.load.fleet.submission import FleetSubmitter
from mainstay.load.kind import KIND, SLICE
from mainstay.model import Offer, Session, route_of
from mainstay.outputs import Blobs, open_blobs
from mainstay.stores.remote import MAINSTAY_VERSION, RemoteStore, StoreService
from mainstay.testing import MemoryStore, VirtualClock

OURS = {"cluster": "main", "environment": "default"}


class SmallCluster:
    """`control` is the operator's, `behind` that of its manager."""

    def __init__(
        self,
        network: MemoryBusNetwork,
        clock: Clock,
        behind: Control,
        control: Control,
        bundles: BundleStorage,
        services: tuple[StoreService, BundleService],
    ) -> None:
        self.network = network
        self.clock = clock
        self.behind = behind
        self.control = control
        self.bundles = bundles
        self.services = services
        self.notes: list[str] = []

    async def join(self, node: str, cores: int = 4, labels: Mapping[str, str] | None = None) -> Session:
        """A node that runs load tests."""
        offer = Offer(cores=cores, tasks={route_of(KIND.name, SLICE): {}})
        return await self.behind.claims.open_session(worker=node, node=node, labels=labels, offer=offer, lease_s=1e6)

    async def sleep(self, seconds: float) -> None:
        assert isinstance(self.clock, VirtualClock)
        self.clock.advance(seconds)

    def submitter(self, **more: Any) -> FleetSubmitter:
        options = {"on_note": self.notes.append, "sleep": self.sleep, **more}
        return FleetSubmitter(self.control, rng=random.Random(1), **options)


@contextlib.asynccontextmanager
async def small_cluster(
    *, limits: BundleLimits | None = None, keeps_bundles: bool = True, clock: Clock | None = None
) -> AsyncIterator[SmallCluster]:
    clock, network = clock or VirtualClock(), MemoryBusNetwork()
    store, blobs = MemoryStore(clock=clock), await open_blobs("memory:")
    stores = StoreService(store, network.client("manager.m1"), manager="m1", version=MAINSTAY_VERSION, **OURS)
    kept: Blobs | None = blobs if keeps_bundles else None
    bundles = BundleService(kept, network.client("manager.m1.bundles"), name="m1", clock=clock, limits=limits, **OURS)
    await stores.start()
    await bundles.start()
    remote = RemoteStore(
        network.client("operator.ann"),
        role="operator",
        name="ann",
        version=MAINSTAY_VERSION,
        rng=random.Random(2),
        clock=clock,
        **OURS,
    )
    await remote.open()
    try:
        storage = BundleStorage(blobs, limits=limits, clock=clock)
        yield SmallCluster(network, clock, Control(store), Control(remote), storage, (stores, bundles))
    finally:
        await remote.close()
        await bundles.stop()
        await stores.stop()
        await store.close()
        await blobs.close()
