"""`self.client`: the protocols that a virtual user speaks, each made when it is first used."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .network import Network
from .registry import factory

if TYPE_CHECKING:
    from .http import HTTPClient


class Clients:
    """The sessions of one virtual user, by protocol."""

    if TYPE_CHECKING:
        http: HTTPClient

    def __init__(self, network: Network) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        session = factory(name)(self._network)
        setattr(self, name, session)
        return session

    async def close(self) -> None:
        """Close all that are open; those that are used afterwards are new."""
        sessions = [self.__dict__.pop(name) for name in list(self.__dict__) if not name.startswith("_")]
        if sessions:
            await asyncio.gather(*(session.close() for session in sessions))
