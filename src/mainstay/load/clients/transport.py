"""A connected socket with callbacks, with or without TLS.

It replaces the transports of the event loop: with TLS, reading the socket directly takes half the CPU time (see
`http.connect`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from ...errors import CallFailed
from ..prepared import URLParts
from ..results import Opening
from .call_limits import too_long
from .http.connect import open_socket
from .http.shared import SharedHTTPState
from .http.turns import LATER
from .network import Network, Timeouts

#: a larger buffer for each read would take a fifth of the time of a small call
_READ = 16 * 1024
_READ_MORE = 256 * 1024
#: the most reads before a call is sent, for servers that send without a pause
_POLLS = 64

OnData = Callable[[bytes], None]
OnEnd = Callable[[CallFailed], None]


class DirectTransport:
    """Calls `on_data` with received bytes, `on_written` when delayed bytes are written, and `on_end` once, when the
    other side closes the connection."""

    __slots__ = ("_fd", "_left", "_loop", "_on_data", "_on_end", "_on_written", "_read", "_sock", "_what", "closed")

    def __init__(
        self, sock: socket.socket, *, what: str, on_data: OnData, on_end: OnEnd, on_written: Callable[[], None]
    ) -> None:
        self._sock = sock
        self._what = what
        self._on_data = on_data
        self._on_end = on_end
        self._on_written = on_written
        self._fd = sock.fileno()
        self._left = bytearray()
        self._read = _READ
        self._loop = asyncio.get_running_loop()
        self.closed = False
        self._loop.add_reader(self._fd, self._readable)

    def write(self, data: bytes) -> bool:
        """Write bytes. True: all were written at once; else `on_written` is called later."""
        if self.closed:
            return True
        if not self._left:
            try:
                sent = self._sock.send(data)
            except LATER:
                sent = 0
            except OSError as error:
                self._end(error)
                return True
            if sent == len(data):
                return True
            data = data[sent:]
            self._loop.add_writer(self._fd, self._writable)
        self._left += data
        return False

    @property
    def protocol(self) -> str | None:
        """The protocol that was negotiated with TLS (ALPN), if any."""
        return self._sock.selected_alpn_protocol() if isinstance(self._sock, ssl.SSLSocket) else None

    def close(self) -> None:
        """Close the socket; no callback is called after this."""
        if not self.closed:
            self.closed = True
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._sock.close()

    def poll(self) -> None:
        """Read data that the event loop has not read yet: a new call must not take it for its response."""
        for _ in range(_POLLS):
            if self.closed or not self._readable():
                return

    def _readable(self) -> bool:
        """Read once. False: no data."""
        try:
            data = self._sock.recv(self._read)
        except LATER:
            return False
        except OSError as error:
            self._end(error)
            return False
        if not data:
            self._end(None)
            return False
        self._read = _READ if len(data) < _READ else _READ_MORE
        self._on_data(data)
        # the loop does not see data that OpenSSL has decrypted already
        while not self.closed and isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            self._on_data(self._sock.recv(_READ_MORE))
        return True

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._left)
        except LATER:
            return
        except OSError as error:
            self._end(error)
            return
        del self._left[:sent]
        if not self._left:
            self._loop.remove_writer(self._fd)
            self._on_written()

    def _end(self, error: OSError | None) -> None:
        if not self.closed:
            self.close()
            why = f" ({error.strerror or error})" if error is not None else ""
            self._on_end(CallFailed("closed", f"{self._what} closed the connection{why}"))


async def open_transport(
    network: Network,
    parts: URLParts,
    limits: Timeouts,
    *,
    alpn: tuple[str, ...] = (),
    on_data: OnData,
    on_end: OnEnd,
    on_written: Callable[[], None],
) -> tuple[DirectTransport, Opening]:
    """Connect to a URL, through the proxy if there is one."""
    limit = limits.connect
    try:
        async with asyncio.timeout(limit):
            proxy = network.keep(SharedHTTPState).proxy
            sock, opening = await open_socket(network, parts, proxy=proxy, session=None, alpn=alpn)
    except TimeoutError:
        raise too_long("connect", limit or 0.0, parts.shown) from None
    line = DirectTransport(sock, what=parts.shown, on_data=on_data, on_end=on_end, on_written=on_written)
    return line, opening
