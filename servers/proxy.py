"""A TCP proxy that spoils the wire between a client and a server: cuts, refuses, stalls, and adds latency.

    with Proxy.before(redis.url()) as proxy:
        client = connect(proxy.url)
        proxy.cut_after(down=0)     # the next answer is lost: the server has done it, the client never hears of it
        proxy.cut()                 # every connection ends now
        proxy.refuse()              # ... and no new one is taken, until proxy.accept()
        proxy.delay(up=0.001, down=0.001)

`up` is what clients send, `down` what the server answers. It runs on a thread of its own; every method may be called
from any other and has taken effect when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Self, TypeVar, cast
from urllib.parse import urlsplit

from .server import free_port

HOST = "127.0.0.1"
T = TypeVar("T")


class _Way:
    """One direction of one connection: what came in here goes out there."""

    def __init__(self, wire: _Wire, name: str) -> None:
        self._wire = wire
        self.name = name
        self.out: asyncio.Transport | None = None
        self._waiting: deque[bytes] = deque()
        self.has_ended = False
        self.over = False
        """the end it came from is gone altogether, so nothing can go back either"""

    def came(self, data: bytes) -> None:
        delay_s = self._wire.delay_s[self.name]
        if not self._waiting and not delay_s and self._may_send:
            self._send(data)
            return
        self._waiting.append(data)
        if self._may_send:
            self._wire.loop.call_later(delay_s, self._next)

    def ended(self) -> None:
        """Nothing more comes; what waits still goes out."""
        self.has_ended = True
        self._finish()

    def release(self) -> None:
        """What a stall or a slow connect held up goes on."""
        while self._waiting and self._may_send:
            self._next()
        self._finish()

    @property
    def _may_send(self) -> bool:
        return self.out is not None and self.name not in self._wire.stalled

    def _next(self) -> None:
        # one timer per piece, and each sends the oldest: equal times must not swap pieces
        if self._waiting and self._may_send:
            self._send(self._waiting.popleft())
        self._finish()

    def _send(self, data: bytes) -> None:
        if self.out is not None and not self.out.is_closing():
            self.out.write(data)

    def _finish(self) -> None:
        if self.has_ended and not self._waiting and self.out is not None and not self.out.is_closing():
            with contextlib.suppress(OSError):  # the other end was reset
                self.out.write_eof()
            if self.over:
                self.out.close()


class _End(asyncio.Protocol):
    """One socket of a connection: what it hears goes one way, what it is told comes the other."""

    def __init__(self, link: _Link, way: _Way, back: _Way) -> None:
        self._link = link
        self._way = way
        self._back = back

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._back.out = cast("asyncio.Transport", transport)
        self._link.wire.transports.add(self._back.out)
        self._link.made(self._back)

    def data_received(self, data: bytes) -> None:
        self._link.pass_on(self._way, data)

    def eof_received(self) -> bool:
        self._way.ended()
        # the other direction may go on
        return not self._back.has_ended

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why does not matter
        if self._back.out is not None:
            self._link.wire.transports.discard(self._back.out)
        self._way.over = True
        self._way.ended()
        self._link.lost()


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, wire: _Wire) -> None:
        self.wire = wire
        self.up, self.down = _Way(wire, "up"), _Way(wire, "down")
        self.client = _End(self, self.up, self.down)
        self._server = _End(self, self.down, self.up)
        self._over = False

    def made(self, way: _Way) -> None:
        if way is self.down:  # the client is here: go and find the server
            self.wire.links.add(self)
            self._task = self.wire.loop.create_task(self._connect())
        elif self._over:
            self.abort()
        else:
            way.release()

    async def _connect(self) -> None:
        try:
            await self.wire.loop.create_connection(lambda: self._server, *self.wire.target)
        except OSError:  # a server that is down looks like one
            self.abort()

    def pass_on(self, way: _Way, data: bytes) -> None:
        left = self.wire.cuts.get(way.name)
        if left is None or len(data) <= left:
            way.came(data)
            if left is not None:
                self.wire.cuts[way.name] = left - len(data)
            return
        del self.wire.cuts[way.name]
        self.wire.cut_links += 1
        if left:
            way.came(data[:left])
            way.release()
        self._over = True
        for each in (self.up, self.down):
            if each.out is not None:
                each.out.close()  # what was sent so far arrives

    def abort(self) -> None:
        self._over = True
        for way in (self.up, self.down):
            if way.out is not None:
                way.out.abort()
        self.wire.links.discard(self)

    def lost(self) -> None:
        self._over = True
        if all(way.out is None or way.out.is_closing() for way in (self.up, self.down)):
            self.wire.links.discard(self)


class _Wire:
    """What lives on the proxy's loop."""

    def __init__(self, target: tuple[str, int], loop: asyncio.AbstractEventLoop) -> None:
        self.target = target
        self.loop = loop
        self.links: set[_Link] = set()
        self.transports: set[asyncio.Transport] = set()
        self.delay_s = {"up": 0.0, "down": 0.0}
        self.stalled: frozenset[str] = frozenset()
        self.cuts: dict[str, int] = {}
        """bytes that may still pass before a connection is cut"""
        self.cut_links = 0
        self._listener: socket.socket | None = None
        self._making: set[asyncio.Task[object]] = set()

    def listen(self, port: int) -> None:
        if self._listener is None:
            self._listener = socket.create_server((HOST, port), backlog=128)
            self._listener.setblocking(False)
            self.loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        # by hand: a connection that asyncio's server has accepted but not yet made is forgotten when that is closed
        assert self._listener is not None
        with contextlib.suppress(OSError):
            taken, _ = self._listener.accept()
            taken.setblocking(False)
            # asyncio does so for sockets that know their protocol, which those of `create_server` do not. Without it
            # the end of an answer waits 40 ms for an acknowledgement that waits for more
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            making = self.loop.create_task(self.loop.connect_accepted_socket(lambda: _Link(self).client, taken))
            self._making.add(making)
            making.add_done_callback(self._making.discard)

    def deaf(self) -> None:
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def cut(self) -> int:
        cut = list(self.links)
        for link in cut:
            link.abort()
        return len(cut)

    async def end(self) -> None:
        """Let go of every socket."""
        self.deaf()
        while self._making or self.transports:
            for transport in self.transports:
                transport.abort()
            await asyncio.sleep(0)

    def set_stalled(self, stalled: frozenset[str]) -> None:
        self.stalled = stalled
        for link in list(self.links):
            link.up.release()
            link.down.release()


class Proxy:
    """See the module's head."""

    def __init__(self, host: str, port: int) -> None:
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._wire = _Wire((host, port), self._loop)
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.url = f"tcp://{HOST}:{self.port}"
        self.accept()

    @classmethod
    def before(cls, url: str) -> Self:
        """In front of the server of a URL; `proxy.url` is the same URL through the proxy."""
        parts = urlsplit(url)
        assert parts.port is not None, "a URL with its port"
        made = cls(parts.hostname or HOST, parts.port)
        user, at, _ = parts.netloc.rpartition("@")
        made.url = parts._replace(netloc=f"{user}{at}{HOST}:{made.port}").geturl()
        return made

    @property
    def connections(self) -> int:
        """How many there are now."""
        return self._do(lambda: len(self._wire.links))

    @property
    def cut_by_bytes(self) -> int:
        """How often `cut_after` has struck."""
        return self._do(lambda: self._wire.cut_links)

    def cut(self) -> int:
        """End all connections now, in both directions, in the middle of whatever is said; how many there were."""
        return self._do(self._wire.cut)

    def cut_after(self, *, up: int | None = None, down: int | None = None) -> None:
        """Let so many bytes more pass in a direction, over all connections together; then the connection that brings
        the next byte is cut. Once; None takes the order back."""
        wanted = {name: n for name, n in (("up", up), ("down", down)) if n is not None}
        self._do(partial(setattr, self._wire, "cuts", wanted))

    def refuse(self) -> None:
        """Take no new connection, as if no server were there. Those that are stay."""
        self._do(self._wire.deaf)

    def accept(self) -> None:
        self._do(partial(self._wire.listen, self.port))

    def stall(self, *ways: str) -> None:
        """Pass nothing on, and say nothing: the wire is there and dead, as after a firewall forgot it. With `up` or
        `down` in that direction only."""
        self._do(partial(self._wire.set_stalled, frozenset(ways or ("up", "down"))))

    def flow(self) -> None:
        """End a stall: what was held up arrives."""
        self._do(partial(self._wire.set_stalled, frozenset()))

    def delay(self, *, up: float = 0.0, down: float = 0.0) -> None:
        """Seconds that everything takes longer from now on."""
        self._do(partial(self._wire.delay_s.update, up=up, down=down))

    def close(self) -> None:
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._wire.end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _do(self, work: Callable[[], T]) -> T:
        async def there() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result()
