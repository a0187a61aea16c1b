"""Raw TCP, with TLS for `tls://host:port`: send bytes, receive bytes, or both in one call.

The caller sets where a response ends: at a delimiter (`until`), after a number of bytes (`size`), or with the first
bytes. Bytes that arrived before a call was sent cannot be its response: `bidirectional` discards them and counts them
as unexpected, `receive` takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple

from ...errors import CallFailed, InvalidInput
from ..prepared import URL, URLParts
from ..results import Opening
from .call_limits import PendingCall, bytes_of, in_time
from .connection_cache import parts_of
from .http.options import Timeout
from .messages import MessageClient, MessageConnection
from .network import Network, Timeouts
from .responses import TCPResponse
from .transport import open_transport

__all__ = ["TCPClient", "TCPConnection", "TCPResponse"]

_now = time.perf_counter
Calling = Coroutine[Any, Any, TCPResponse]


class _ResponseEnd(NamedTuple):
    """Where a response ends."""

    until: bytes
    size: int

    def end(self, held: bytearray) -> int:
        """The length of the response; 0: it is not complete."""
        if self.until:
            at = held.find(self.until)
            return at + len(self.until) if at >= 0 else 0
        if self.size:
            return self.size if len(held) >= self.size else 0
        return len(held)


class TCPConnection(MessageConnection):
    """One connection, for one call at a time."""

    def __init__(self, network: Network, parts: URLParts) -> None:
        super().__init__(network, parts)
        self._opening: Opening | None = None
        """for the call that opened it"""
        self._held = bytearray()
        self._first = 0.0
        self._gone = 0.0
        self._wanted: _ResponseEnd | None = None

    def send(self, data: Any, *, timeout: Timeout | None = None) -> Calling:
        """Send, and be done when the system has taken all of it."""
        return self._call(bytes_of(data), None, self._limits(timeout))

    def receive(self, *, until: bytes | str = b"", size: int = 0, timeout: Timeout | None = None) -> Calling:
        """Receive from the other side, including bytes that have arrived already."""
        return self._call(b"", _wanted(until, size), self._limits(timeout))

    def bidirectional(
        self, data: Any, *, until: bytes | str = b"", size: int = 0, timeout: Timeout | None = None
    ) -> Calling:
        """Send, and wait for the response. Earlier bytes are discarded; take them with `receive`."""
        return self._call(bytes_of(data), _wanted(until, size), self._limits(timeout))

    async def _open(self, started: float, limits: Timeouts) -> None:
        async with in_time(limits, started, self._parts.shown):
            self._transport, self._opening = await open_transport(
                self._network, self._parts, limits, on_data=self._received, on_end=self._over, on_written=self._written
            )

    async def _call(
        self, data: bytes, wanted: _ResponseEnd | None, limits: Timeouts, started: float = 0.0
    ) -> TCPResponse:
        started = started or _now()
        network = self._network
        if network.lease.is_over():
            await network.lease.wait()
        if self._waiting is not None:
            raise InvalidInput("tcp", "this connection has a call under way; wait for it, or open another connection")
        if self._transport is None:
            await self._open(started, limits)
        elif data and wanted is not None:
            self._transport.poll()
            self._discard()
        if self._ended is not None and not (self._held and not data):
            raise self._ended
        self._waiting = waiting = PendingCall(started=started, limits=limits, what=self._parts.shown)
        self._wanted, self._first = wanted, 0.0
        network.sent += bool(data)
        try:
            self._begin(data)
            content: bytes = await self._watch.answer(waiting)
        except BaseException as error:
            received = len(self._held)
            if isinstance(error, asyncio.CancelledError) and data:
                network.abort(len(data), received)
            self._waiting = None
            self._held.clear()  # the beginning of its response
            self.give_up()
            if isinstance(error, CallFailed):
                raise error.of_call(len(data), received) from None
            raise
        ended = waiting.last
        self._waiting = None
        network.answered += bool(data)
        opening, self._opening = self._opening, None
        return TCPResponse(
            content,
            started=started,
            written=self._gone,
            first=self._first or ended,
            ended=ended,
            opening=opening,
            sent=len(data),
            received=len(content),
        )

    def _discard(self) -> None:
        """Drop bytes that arrived when no call waited for them."""
        if self._held:
            self._network.unexpected += 1
            self._held.clear()

    def _begin(self, data: bytes) -> None:
        assert self._transport is not None
        assert self._waiting is not None
        self._waiting.writing = bool(data) and not self._transport.write(data)
        self._gone = _now()
        self._look(self._gone)

    def _written(self) -> None:
        if self._waiting is not None:
            self._gone = _now()
            self._waiting.goes_on(self._gone)
            self._waiting.writing = False
            self._look(self._gone)

    def _received(self, data: bytes) -> None:
        self._held += data
        if self._waiting is not None:
            now = _now()
            self._first = self._first or now
            self._look(now)

    def _over(self, error: CallFailed) -> None:
        self._ended = error
        self._watch.stop()
        if self._waiting is not None:
            self._look(_now())
            self._waiting.fail(error)

    def _look(self, now: float) -> None:
        """Settle the call if its response is complete."""
        waiting = self._waiting
        if waiting is None or not waiting.goes_on(now) or waiting.writing:
            return
        if self._wanted is None:
            waiting.settle(b"")
        elif end := self._wanted.end(self._held):
            content = bytes(self._held[:end])
            del self._held[:end]
            waiting.settle(content)
        elif self._ended is not None:
            waiting.fail(self._ended)


class TCPClient(MessageClient[TCPConnection]):
    """`self.client.tcp`: the connections of one virtual user. They stay open; a connection has one call at a time.

    r = await self.client.tcp.bidirectional("tcp://127.0.0.1:9000", b"PING\\r\\n", until=b"\\r\\n")
    r.content, r.elapsed
    """

    def send(self, url: URL | str, data: Any, *, timeout: Timeout | None = None) -> Calling:
        """Send, and be done when the system has taken all of it."""
        return self._call(url, bytes_of(data), None, timeout)

    def receive(
        self, url: URL | str, *, until: bytes | str = b"", size: int = 0, timeout: Timeout | None = None
    ) -> Calling:
        """Receive on the connection that was used last, including bytes that have arrived already."""
        return self._call(url, b"", _wanted(until, size), timeout)

    def bidirectional(
        self, url: URL | str, data: Any, *, until: bytes | str = b"", size: int = 0, timeout: Timeout | None = None
    ) -> Calling:
        """Send, and wait for the response. Earlier bytes are discarded; take them with `receive`."""
        return self._call(url, bytes_of(data), _wanted(until, size), timeout)

    def connect(
        self, url: URL | str, *, timeout: Timeout | None = None
    ) -> contextlib.AbstractAsyncContextManager[TCPConnection]:
        """A connection that no other call uses; closed at the end of the block."""
        return self._connected(self._parts(url), self._limits(timeout))

    def _call(self, url: URL | str, data: bytes, wanted: _ResponseEnd | None, timeout: Timeout | None) -> Calling:
        return self._lent(self._parts(url), data, wanted, self._limits(timeout))

    async def _lent(self, parts: URLParts, data: bytes, wanted: _ResponseEnd | None, limits: Timeouts) -> TCPResponse:
        started = _now()
        connection = self._connections.take(parts.origin, lambda: TCPConnection(self._network, parts))
        try:
            return await connection._call(data, wanted, limits, started)  # noqa: SLF001 - the two are one part
        finally:
            self._connections.give_back(parts.origin, connection)

    @contextlib.asynccontextmanager
    async def _connected(self, parts: URLParts, limits: Timeouts) -> AsyncIterator[TCPConnection]:
        connection = TCPConnection(self._network, parts)
        await connection._open(_now(), limits)  # noqa: SLF001 - the two are one part
        self._connections.add(connection)
        try:
            yield connection
        finally:
            self._connections.drop(connection)
            connection.give_up()

    def _parts(self, url: URL | str) -> URLParts:
        return parts_of(url, self.base_url, ("tcp", "tls"), "TCP")


def _wanted(until: bytes | str, size: int) -> _ResponseEnd:
    if until and size:
        raise InvalidInput("until", "a response ends at a delimiter or after a number of bytes; give one of them")
    if size < 0:
        raise InvalidInput("size", f"{size} is not a number of bytes")
    return _ResponseEnd(until.encode() if isinstance(until, str) else until, size)
