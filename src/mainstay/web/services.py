"""What all handlers of the server share: `WebServices`. It imports no routes, so every module of routes can import
it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..control.check import Report
from ..control.explain import ClusterFacts
from .api.masker import Masker
from .cluster_source import ClusterSource
from .live.hub import LiveHub
from .live.request_counts import RequestCounts
from .options import WebOptions
from .security.guard import Guard
from .security.tokens import Tokens
from .stores import ServedStore, ServedStores


class WebServices:
    """Stores, guard, masker and live hub of one server: `request.app.state.site`."""

    def __init__(
        self,
        stores: ServedStores,
        options: WebOptions,
        *,
        tokens: Tokens | None,
        cluster: ClusterSource | None = None,
    ) -> None:
        self.stores = stores
        self.cluster = cluster
        """the cluster of the first store; None: the server has none"""
        self.options = options
        self.guard = Guard(options, tokens)
        self.masker = Masker(options.masked, shows=options.show_payloads)
        self.hub = LiveHub(stores, options, self.masker)
        self.requests = RequestCounts()
        self.checks: dict[str, Callable[[object], Awaitable[Report]]] = {}
        """by store: a check that continues where the last one ended"""

    async def cluster_facts(self, served: ServedStore) -> ClusterFacts | None:
        """What managers know of the nodes of a store; None if it is not that of the cluster."""
        return None if self.cluster is None or served is not self.stores.first else await self.cluster.facts()


__all__ = ["WebServices"]
