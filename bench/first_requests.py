"""A target that knows when each process made its first request, from nothing that the process says.

It answers any GET and notes when the first one came over each connection. While connections are open, the kernel knows
which process has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import msgspec

from .process_trees import owners_of_ports

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n"
_END = b"\r\n\r\n"


class FirstRequest(msgspec.Struct, frozen=True):
    """The first request of a connection."""

    steady_s: float
    wall_ms: float


class FirstRequests:
    """The target. `first_requests` starts it."""

    def __init__(self) -> None:
        self.port = 0
        self._by_port: dict[int, FirstRequest] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def clear(self) -> None:
        """Forget all, before a run. No connection is open then."""
        self._by_port = {}

    @property
    def has_begun(self) -> bool:
        return bool(self._by_port)

    def by_process(self) -> dict[int, FirstRequest]:
        """The first request of each process that still has its connections."""
        noted = dict(self._by_port)
        found: dict[int, FirstRequest] = {}
        for port, pid in owners_of_ports(noted).items():
            if pid not in found or noted[port].steady_s < found[pid].steady_s:
                found[pid] = noted[port]
        return found

    def note(self, port: int) -> None:
        """A request came over the connection from this port."""
        if port not in self._by_port:
            self._by_port[port] = FirstRequest(time.monotonic(), time.time() * 1000)


class _Connection(asyncio.Protocol):
    def __init__(self, target: FirstRequests) -> None:
        self._target = target
        self._part = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._port = transport.get_extra_info("peername")[1]

    def data_received(self, data: bytes) -> None:
        self._target.note(self._port)
        *whole, self._part = (self._part + data).split(_END)
        self._transport.write(_ANSWER * len(whole))


@contextlib.contextmanager
def first_requests() -> Iterator[FirstRequests]:
    """Serve on a free port, in a thread."""
    target = FirstRequests()
    ready, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = await loop.create_server(lambda: _Connection(target), "127.0.0.1", 0)
        target.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="first requests")
    thread.start()
    try:
        ready.wait()
        yield target
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
