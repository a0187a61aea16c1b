"""TCP and UDP ports of the target that echo, after the requested delay."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .connections import CountedConnection
from .counts import PathTally
from .due_responses import PausingProtocol
from .site import Site

_now = time.perf_counter


class TcpEcho(PausingProtocol, CountedConnection):
    """Echoes a stream in order. It has no requests, so only bytes and connections are counted."""

    def __init__(self, site: Site, open_connections: set[Any]) -> None:
        super().__init__(site, open_connections)
        self._last = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._count()

    def data_received(self, data: bytes) -> None:
        site = self._site
        begun = _now()
        site.counter.received += len(data)
        delay = site.delay()
        if not delay and not site.stalled_until and not self._last:
            self._send(data)
            return
        self._last = max(self._last, site.due(begun, delay))
        site.timers.at(self._last, self._due, data, self._last)

    def _due(self, data: bytes, due: float) -> None:
        if due == self._last:
            self._last = 0.0
        self._send(data)

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._write(data)
            self._site.counter.sent += len(data)


class UdpEcho(asyncio.DatagramProtocol):
    """Echoes datagrams; each is counted as a request of "udp"."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        site = self._site
        begun = _now()
        tally = site.counter.tally("udp")
        tally.begun += 1
        site.counter.received += len(data)
        delay = site.delay()
        if not delay and not site.stalled_until:
            self._send(data, addr, tally)
            return
        due = site.due(begun, delay)
        site.timers.at(due, self._due, data, addr, tally, begun, due)

    def _due(self, data: bytes, addr: Any, tally: PathTally, begun: float, due: float) -> None:
        self._send(data, addr, tally)
        self._site.counter.delays.add(due - begun, _now() - begun)

    def _send(self, data: bytes, addr: Any, tally: PathTally) -> None:
        self._transport.sendto(data, addr)
        self._site.counter.sent += len(data)
        tally.statuses["echoed"] += 1
