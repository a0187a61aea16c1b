"""UDP: datagrams sent, received, or both in one call. A lost datagram is a timeout.

A datagram that arrived before a call was sent cannot be its response: `bidirectional` discards it and counts it as
unexpected, `receive` takes it. Datagrams do not name the call that they answer: a duplicate that arrives after the next
call was sent looks like its response, unless `match` distinguishes them.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ...errors import CallFailed, InvalidInput
from ..prepared import URL, URLParts
from ..results import Opening
from .call_limits import PendingCall, TimeoutWatch, bytes_of, in_time
from .connection_cache import parts_of
from .http.options import Timeout
from .messages import MessageClient
from .network import Network, Timeouts, is_address
from .responses import UDPResponse

__all__ = ["UDPClient", "UDPResponse"]

_now = time.perf_counter
_READ = 65_535
#: datagrams that are kept for `receive`
_MOST_HELD = 1000
Calling = Coroutine[Any, Any, UDPResponse]
Match = Callable[[bytes], bool]


class _Endpoint:
    """A socket for one call at a time, so that responses are never mixed up."""

    def __init__(self, network: Network, parts: URLParts) -> None:
        self._network = network
        self._watch = TimeoutWatch()
        self._parts = parts
        self._sock: socket.socket | None = None
        self._held: collections.deque[bytes] = collections.deque()
        self._waiting: PendingCall | None = None
        self._match: Match | None = None

    @property
    def usable(self) -> bool:
        return self._sock is not None and self._waiting is None

    def give_up(self) -> None:
        self._watch.stop()
        if self._waiting is None:
            self._poll()
        self._discard()
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None
        if self._waiting is not None and not self._waiting.future.done():
            self._network.aborted += 1
            self._waiting.fail(CallFailed("closed", f"{self._parts.shown}: the client closed the socket"))

    async def call(
        self, started: float, data: bytes | None, *, answered: bool, limits: Timeouts, match: Match | None
    ) -> UDPResponse:
        opening = await self._open(started, limits) if self._sock is None else None
        network = self._network
        if network.lease.is_over():
            await network.lease.wait()
        if data is not None and answered:
            self._poll()
            if match is None:
                self._discard()
        self._match = match
        self._waiting = waiting = PendingCall(started=started, limits=limits, what=self._parts.shown)
        network.sent += data is not None
        try:
            if data is not None:
                self._send(data)
            written = _now()
            if not waiting.goes_on(written):
                pass
            elif not answered:
                waiting.settle((b"", written))
            elif self._held and data is None:
                waiting.settle((self._held.popleft(), written))
            content, first = await self._watch.answer(waiting)
        except BaseException as error:
            size = len(data or b"")
            if isinstance(error, asyncio.CancelledError) and data is not None:
                network.abort(size, 0)
            # a late response must not be taken for that of the next call
            self._waiting = None
            self.give_up()
            if isinstance(error, CallFailed):
                raise error.of_call(size, 0) from None
            raise
        self._waiting = None
        network.answered += data is not None
        return UDPResponse(
            content,
            started=started,
            written=written,
            first=first,
            ended=first,
            opening=opening,
            sent=len(data or b""),
            received=len(content),
        )

    async def _open(self, started: float, limits: Timeouts) -> Opening:
        began = _now()
        parts = self._parts
        async with in_time(limits, started, parts.shown):
            address = await self._network.resolve(parts.host, parts.port, socket.SOCK_DGRAM)
        found = _now()
        try:
            self._sock = sock = socket.socket(address.family, socket.SOCK_DGRAM)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise CallFailed("connect", f"{parts.shown}: no socket ({error.strerror or error})") from None
            raise CallFailed(
                "files",
                "there is no free file descriptor for a socket; raise the limit (ulimit -n), or use fewer users",
            ) from None
        sock.setblocking(False)
        try:
            sock.connect(address.sockaddr)
        except OSError as error:
            sock.close()
            self._sock = None
            raise CallFailed("connect", f"cannot send to {parts.shown} ({error.strerror or error})") from None
        asyncio.get_running_loop().add_reader(sock.fileno(), self._readable)
        dns = 0.0 if is_address(parts.host) else found - began
        return Opening(0.0, _now() - found, 0.0, dns)

    def _send(self, data: bytes) -> None:
        assert self._sock is not None
        try:
            self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            raise CallFailed("full", f"{self._parts.shown}: the send buffer of the system is full") from None
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise CallFailed(
                    "size",
                    f"{len(data)} bytes do not fit into a datagram; the maximum is 65507, and less in most networks",
                ) from None
            raise self._broken(error) from None

    def _readable(self) -> None:
        self._read()

    def _poll(self) -> None:
        """Read datagrams that the event loop has not read yet."""
        for _ in range(_MOST_HELD):
            if self._sock is None or not self._read():
                return

    def _read(self) -> bool:
        """Read one datagram. False: there was none."""
        assert self._sock is not None
        try:
            data = self._sock.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if self._waiting is not None:
                self._waiting.fail(self._broken(error))
            return False
        now = _now()
        waiting = self._waiting
        if waiting is None or not waiting.goes_on(now):
            self._hold(data)
            return True
        try:
            if self._match is None or self._match(data):
                waiting.settle((data, now))
            else:
                self._hold(data)
        except Exception as error:  # noqa: BLE001 - an error of the test's `match` is raised in its step
            waiting.fail(error)
        return True

    def _hold(self, data: bytes) -> None:
        """Keep it for `receive`; the oldest ones are dropped."""
        if len(self._held) >= _MOST_HELD:
            self._held.popleft()
            self._network.unexpected += 1
        self._held.append(data)

    def _discard(self) -> None:
        """Drop datagrams that arrived when no call waited for them."""
        self._network.unexpected += len(self._held)
        self._held.clear()

    def _broken(self, error: OSError) -> CallFailed:
        shown = self._parts.shown
        if isinstance(error, ConnectionRefusedError):
            return CallFailed("refused", f"no server listens at {shown}; is it running?")
        return CallFailed("closed", f"{shown}: {error.strerror or error}")


class UDPClient(MessageClient[_Endpoint]):
    """`self.client.udp`: the sockets of one virtual user.

    r = await self.client.udp.bidirectional("udp://127.0.0.1:9000", b"ping", timeout="1s")
    r.content, r.elapsed
    """

    def send(self, url: URL | str, data: Any, *, timeout: Timeout | None = None) -> Calling:
        """Send a datagram, and be done when the system has taken it."""
        return self._call(url, bytes_of(data), timeout, None, answered=False)

    def receive(self, url: URL | str, *, timeout: Timeout | None = None) -> Calling:
        """Receive a datagram on the socket that was used last, also one that has arrived already."""
        return self._call(url, None, timeout, None, answered=True)

    def bidirectional(
        self, url: URL | str, data: Any, *, timeout: Timeout | None = None, match: Match | None = None
    ) -> Calling:
        """Send a datagram, and wait for the next one.

        `match` decides whether a received datagram is the response: `lambda got: got[:2] == number`. The others are
        left for `receive`. Without `match`, earlier datagrams are discarded.
        """
        return self._call(url, bytes_of(data), timeout, match, answered=True)

    def _call(
        self, url: URL | str, data: bytes | None, timeout: Timeout | None, match: Match | None, *, answered: bool
    ) -> Calling:
        if self._network.proxy is not None:
            raise InvalidInput("proxy", "UDP does not work through a proxy; leave the proxy out")
        parts = parts_of(url, self.base_url, ("udp",), "UDP")
        return self._lent(parts, data, answered, self._limits(timeout), match)

    async def _lent(
        self, parts: URLParts, data: bytes | None, answered: bool, limits: Timeouts, match: Match | None
    ) -> UDPResponse:
        started = _now()
        endpoint = self._connections.take(parts.origin, lambda: _Endpoint(self._network, parts))
        try:
            return await endpoint.call(started, data, answered=answered, limits=limits, match=match)
        finally:
            self._connections.give_back(parts.origin, endpoint)
