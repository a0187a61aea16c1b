"""What the HTTP sessions of a process share: calls that were encoded once, and the watch over unwanted ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ....errors import InvalidInput
from ....storage.urls import shown_url
from ...prepared import URLParts, split
from ..network import Network
from .calls import HTTPCall
from .connect import proxy_line
from .turns import Turns

if TYPE_CHECKING:
    from .connection import HTTP1Connection

SWEEP_S = 0.05
"""how often it is looked whether anybody still waits for a call. Whoever does not says nothing, and a callback for that
would cost every call"""
_MOST_CALLS = 4096


class SharedHTTPState:
    """One per workflow in each process."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.gets: dict[str, HTTPCall] = {}
        """GETs without options and without cookies, by whole URL"""
        self.leads: dict[Any, HTTPCall] = {}
        """other calls without cookies and without their bodies"""
        self.connections: set[HTTP1Connection] = set()
        self.proxy = _proxy(network.proxy)
        self.turns = Turns(network)
        self._sweeping = False

    def proxy_head(self, parts: URLParts) -> bytes | None:
        """What is added for the proxy to a request that it reads; None: no proxy reads it."""
        if self.proxy is None or parts.secure or parts.unix is not None:
            return None
        return proxy_line(self.proxy)

    def keep_call(self, calls: dict[Any, HTTPCall], key: Any, call: HTTPCall) -> None:
        if len(calls) >= _MOST_CALLS:
            calls.clear()
        calls[key] = call

    def watch(self, connection: HTTP1Connection) -> None:
        """From now on, see to it that it does nothing that nobody wants."""
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
