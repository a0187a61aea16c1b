"""State that the HTTP sessions of a process share: encoded calls, and the sweep for abandoned ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ....errors import InvalidInput
from ....storage import shown_url
from ...prepared import URLParts, split
from ..network import Network
from .calls import HTTPCall
from .connect import proxy_line
from .turns import Turns

if TYPE_CHECKING:
    from .connection import HTTP1Connection

SWEEP_S = 0.05
"""how often abandoned calls are aborted. A callback for a cancelled caller would cost every call"""
_MOST_CALLS = 4096


class SharedHTTPState:
    """One per workflow in each process."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.gets: dict[str, HTTPCall] = {}
        """GETs without options and cookies, by absolute URL"""
        self.leads: dict[Any, HTTPCall] = {}
        """other calls without cookies, without their bodies"""
        self.connections: set[HTTP1Connection] = set()
        self.proxy = _proxy(network.proxy)
        self.turns = Turns(network)
        self._sweeping = False

    def proxy_head(self, parts: URLParts) -> bytes | None:
        """The header for a proxy that reads the request; None: no proxy reads it."""
        if self.proxy is None or parts.secure or parts.unix is not None:
            return None
        return proxy_line(self.proxy)

    def keep_call(self, calls: dict[Any, HTTPCall], key: Any, call: HTTPCall) -> None:
        if len(calls) >= _MOST_CALLS:
            calls.clear()
        calls[key] = call

    def watch(self, connection: HTTP1Connection) -> None:
        """Abort its call if the caller is cancelled, from now on."""
        self.connections.add(connection)
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        for connection in tuple(self.connections):
            connection.drop_unwanted()
        if self.connections:
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        else:
            self._sweeping = False


def _proxy(url: str | None) -> URLParts | None:
    if url is None:
        return None
    try:
        parts = split(url)
    except InvalidInput as error:
        raise InvalidInput("proxy", error.rule) from None
    if parts.scheme not in ("http", "http+unix"):
        raise InvalidInput("proxy", f"{shown_url(url)!r} is not a supported proxy; write http://host:port")
    return parts
