"""The connections of a target, as its counts include them."""

from __future__ import annotations

import asyncio
from typing import Any

from .due_responses import at_once
from .site import Site


class CountedConnection(asyncio.Protocol):
    """A connection that is counted until it is lost. `open_connections` has those that the target closes at its end."""

    def __init__(self, site: Site, open_connections: set[Any]) -> None:
        self._site = site
        self._open = open_connections
        self._counted = True

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._write = at_once(transport)

    def connection_lost(self, _exc: BaseException | None) -> None:
        self._open.discard(self._transport)
        if self._counted:
            self._site.counter.open -= 1

    def _count(self) -> None:
        """Count a new connection; one that another protocol took over is counted already."""
        self._open.add(self._transport)
        self._site.counter.open += 1
        self._site.counter.connections += 1

    def _not_counted(self) -> None:
        """Do not count a connection that reads the counts."""
        if self._counted:
            self._counted = False
            self._site.counter.open -= 1
            self._site.counter.connections -= 1
