"""Reads the cores of a cluster for operators: every kind of job says what its jobs hold and wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..control import CoreReader
from ..kinds import kinds, part
from ..stores import JobStore
from .core_view import ClusterCores, cluster_cores
from .status import NodeInfo

#: an answer of this age is given again: many operators cost the store as much as one
_FRESH_MS = 900


class CoreReadings:
    """The cores of a cluster, as one manager sees them. `store` reads sessions as placement does: without nodes that no
    manager hears."""

    def __init__(self, store: JobStore, nodes: Callable[[], Sequence[NodeInfo]]) -> None:
        self._store = store
        self._nodes = nodes
        self._readers: list[CoreReader] | None = None
        self._reading = asyncio.Lock()
        self._last: ClusterCores | None = None

    async def read(self) -> ClusterCores:
        """The cores now, or a moment ago."""
        async with self._reading:
            last, now_ms = self._last, self._store.clock.now_ms()
            if last is None or not 0 <= now_ms - last.at_ms < _FRESH_MS:
                last = self._last = await self._read(now_ms)
            return last

    async def _read(self, now_ms: int) -> ClusterCores:
        if self._readers is None:
            self._readers = [part(kind.cores)(self._store) for kind in kinds() if kind.cores]
        uses = [await reader.read() for reader in self._readers]
        return cluster_cores(uses, await self._store.sessions(), self._nodes(), at_ms=now_ms)


__all__ = ["CoreReadings"]
