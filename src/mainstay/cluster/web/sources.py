"""Where a server gets its cluster from: over the bus, as an operator, or from a manager in the same process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from ...bundles import BundleClient
from ...stores.remote import ManagerConnection, RemoteCaller
from ..address import ClusterAddress
from ..cluster_service import ClusterClient, JournalRange
from ..core_view import ClusterCores
from ..manager import Manager
from ..operator import operator_bus
from ..status import ClusterStatus, JournalEntry
from .watch import ClusterWatch


class ManagerReader:
    """Reads the cluster as a manager in this process sees it."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def status(self) -> ClusterStatus:
        return await self._manager.status()

    async def cores(self) -> ClusterCores:
        return await self._manager.cores()

    async def journal(
        self, *, from_ms: int | None = None, until_ms: int | None = None, most: int = 50
    ) -> list[JournalEntry]:
        return await self._manager.requests.journal(JournalRange(from_ms=from_ms, until_ms=until_ms, most=most))

    async def drain(self, node: str, *, by: str) -> bool:
        return await self._manager.drain(node, by)


@contextlib.asynccontextmanager
async def watched_cluster(address: ClusterAddress) -> AsyncIterator[ClusterWatch]:
    """The cluster at an address, through any manager."""
    async with operator_bus(address) as (bus, name):
        place: dict[str, Any] = {"name": name, "cluster": address.cluster, "environment": address.environment}
        yield ClusterWatch(
            ClusterClient(bus, **place),
            bundles=BundleClient(bus, role="operator", **place),
            connection=ManagerConnection(bus, RemoteCaller(role="operator", **place)),
        )


@contextlib.asynccontextmanager
async def watched_manager(manager: Manager) -> AsyncIterator[ClusterWatch]:
    """The cluster of a manager in this process."""
    yield ClusterWatch(ManagerReader(manager), bundles=manager.bundle_client(), connection=manager.connection)


__all__ = ["ManagerReader", "watched_cluster", "watched_manager"]
