"""`self.client`: the client sessions of a virtual user, each created on first use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .network import Network
from .registry import factory

if TYPE_CHECKING:
    from .http import HTTPClient
    from .http2 import HTTP2Client
    from .tcp import TCPClient
    from .udp import UDPClient
    from .websocket import WebsocketClient


class Clients:
    """The sessions of one virtual user, by protocol."""

    if TYPE_CHECKING:
        http: HTTPClient
        http2: HTTP2Client
        websocket: WebsocketClient
        tcp: TCPClient
        udp: UDPClient

    def __init__(self, network: Network, *, base_url: str = "") -> None:
        self._network = network
        self._base_url = base_url

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        session = factory(name)(self._network)
        if self._base_url and hasattr(session, "base_url"):
            session.base_url = self._base_url
        setattr(self, name, session)
        return session

    async def close(self) -> None:
        """Close all sessions; later calls use new ones."""
        sessions = [self.__dict__.pop(name) for name in list(self.__dict__) if not name.startswith("_")]
        if sessions:
            await asyncio.gather(*(session.close() for session in sessions))
