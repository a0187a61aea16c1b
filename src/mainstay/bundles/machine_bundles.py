"""The bundles that programs of this machine use: fetched from managers, and removed when they were not used lately."""

from __future__ import annotations

import logging
from pathlib import Path

from ..clock import Clock
from .cache import BundleCache, BundleInUse
from .client import BundleClient
from .manifest import BundleLimits

log = logging.getLogger("mainstay.cluster")


class MachineBundles:
    """The cache of a machine and the way to the managers.

    Above `most_bytes` the bundles that were not used for the longest time are removed, and those that were not used for
    `oldest_s`."""

    def __init__(
        self, folder: Path, client: BundleClient, *, most_bytes: int, oldest_s: float, clock: Clock | None = None
    ) -> None:
        self._folder = folder
        self._client = client
        self._most_bytes = most_bytes
        self._oldest_s = oldest_s
        self._clock = clock
        self._limits: BundleLimits | None = None

    async def use(self, digest: str) -> BundleInUse:
        """A bundle, complete and intact; what is missing is fetched."""
        if self._limits is None:
            self._limits = await self._client.limits()
        cache = BundleCache(self._folder, self._client.fetch, limits=self._limits, clock=self._clock)
        used = await cache.use(digest)
        try:
            pruned = await cache.prune(most_bytes=self._most_bytes, oldest_s=self._oldest_s)
        except BaseException:
            used.release()
            raise
        for removed in () if pruned is None else pruned.removed:
            log.info("bundle removed from the cache digest=%s", removed)
        return used


__all__ = ["MachineBundles"]
