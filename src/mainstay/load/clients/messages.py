"""What the clients of single messages have in common: TCP, WebSocket and UDP."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

from ...errors import CallFailed
from ..prepared import URLParts
from .call_limits import PendingCall, TimeoutWatch
from .connection_cache import ConnectionCache, ConnectionT
from .http.options import Timeout, limits_of
from .network import Network, Timeouts
from .transport import DirectTransport


class MessageConnection(ABC):
    """A connection over TCP. A call waits for a message; others are kept until a call takes them."""

    def __init__(self, network: Network, parts: URLParts) -> None:
        self._network = network
        self._watch = TimeoutWatch()
        self._parts = parts
        self._transport: DirectTransport | None = None
        self._waiting: PendingCall | None = None
        self._ended: CallFailed | None = None

    @property
    def usable(self) -> bool:
        return (
            self._transport is not None and not self._transport.closed and self._waiting is None and self._ended is None
        )

    def give_up(self) -> None:
        self._watch.stop()
        self._discard()
        if self._transport is not None:
            self._transport.close()
        self._ended = self._ended or CallFailed("closed", f"{self._parts.shown}: the client closed the connection")
        if self._waiting is not None and not self._waiting.future.done():
            self._network.aborted += 1
            self._waiting.fail(self._ended)

    @abstractmethod
    def _discard(self) -> None:
        """Drop what arrived when no call waited for it."""

    def _limits(self, timeout: Timeout | None) -> Timeouts:
        return limits_of(timeout, self._network.timeouts)


class MessageClient(Generic[ConnectionT]):
    """The connections of one virtual user."""

    def __init__(self, network: Network, *, base_url: str = "") -> None:
        self.base_url = base_url
        self._network = network
        self._connections: ConnectionCache[ConnectionT] = ConnectionCache()

    async def close(self) -> None:
        self._connections.close()

    def _limits(self, timeout: Timeout | None) -> Timeouts:
        return limits_of(timeout, self._network.timeouts)
