"""The bundle that a node runs: found once, and fetched, checked and held before each start of its worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from ..bundles import BundleClient, BundleInUse, MachineBundles, PublishedBundle
from ..bus import Bus
from ..clock import Clock
from ..errors import BusError, InvalidInput, Overloaded, StoreError
from .address import ClusterAddress
from .node_config import NodeBundleOptions

log = logging.getLogger("mainstay.cluster")

#: what a target begins with that names a bundle
BUNDLE_PREFIX = "bundle:"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0


class NodeBundle:
    """`await NodeBundle(...).ready(bus)` gives the bundle, which is not pruned while this process lives.

    A name is looked up once: a worker that is started again runs the same code, whatever the name points to by then.
    """

    def __init__(
        self,
        options: NodeBundleOptions,
        address: ClusterAddress,
        node: str,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._options = options
        self._address = address
        self._node = node
        self._clock = clock
        self._sleep = sleep
        self._found: PublishedBundle | None = None
        self._bundles: MachineBundles | None = None
        self._used: BundleInUse | None = None

    @property
    def reference(self) -> str:
        """What was asked for: a name or a digest."""
        return self._options.reference

    async def ready(self, bus: Bus) -> BundleInUse:
        """The bundle, complete and intact. While no manager answers, or its storage is away, it tries again. Raises
        what another try would not change."""
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                return await self._open(bus)
            except (BusError, StoreError, Overloaded) as error:
                log.warning("bundle %s not fetched: %s; again in %.1f s", self._options.reference, error, wait_s)
            await self._sleep(wait_s)
            wait_s = min(_LONGEST_WAIT_S, wait_s * 2)

    def release(self) -> None:
        """Allow that the bundle is pruned. A second call does nothing."""
        if self._used is not None:
            self._used.release()

    async def _open(self, bus: Bus) -> BundleInUse:
        client = BundleClient(
            bus,
            role="node",
            name=self._node,
            cluster=self._address.cluster,
            environment=self._address.environment,
            sleep=self._sleep,
        )
        if self._found is None:
            self._found = await client.find(self._options.reference)
            if not self._found.target:
                rule = f"{self._options.reference} has no app: it is code that other jobs use, such as a load test"
                raise InvalidInput("bundle", f"{rule}; publish a program: mainstay cluster bundle push MODULE:APP")
            log.info("bundle found reference=%s digest=%s", self._options.reference, self._found.digest)
        if self._bundles is None:
            self._bundles = MachineBundles(
                Path(self._options.cache),
                client,
                most_bytes=self._options.cache_bytes,
                oldest_s=self._options.cache_age_s,
                clock=self._clock,
            )
        used = await self._bundles.use(self._found.digest)
        self.release()
        self._used = used
        return used


__all__ = ["BUNDLE_PREFIX", "NodeBundle"]
