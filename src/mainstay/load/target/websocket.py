"""WebSocket of the target: echoes every message, after the requested delay. Each counts as a request of "ws"."""

from __future__ import annotations

import time
from typing import Any

from ..extra import extra_needed
from .connections import CountedConnection
from .counts import PathTally
from .due_responses import PausingProtocol
from .message import Request
from .site import Site

with extra_needed("WebSocket"):
    from websockets.exceptions import ConnectionClosed
    from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
    from websockets.frames import Frame, Opcode
    from websockets.http11 import Request as Opening
    from websockets.protocol import OPEN
    from websockets.server import ServerProtocol

_now = time.perf_counter
_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class WebsocketServerConnection(PausingProtocol, CountedConnection):
    """Takes over a connection that was counted when it opened."""

    def __init__(self, site: Site, open_connections: set[Any], request: Request) -> None:
        super().__init__(site, open_connections)
        self._request = request
        self._wire = ServerProtocol(extensions=[ServerPerMessageDeflateFactory()], max_size=None)
        self._parts: list[bytes] = []
        self._text = False
        self._read = self._last = 0.0
        self._under_way: list[PathTally] = []

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        lines = [f"GET {self._request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in self._request.headers)]
        self._wire.receive_data("\r\n".join((*lines, "", "")).encode("latin-1"))
        for event in self._wire.events_received():
            if isinstance(event, Opening):
                self._wire.send_response(self._wire.accept(event))
        self._flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        for tally in self._under_way:
            tally.abandoned += 1
        self._under_way.clear()

    def data_received(self, data: bytes) -> None:
        self._read = _now()
        self._site.counter.received += len(data)
        self._wire.receive_data(data)
        for event in self._wire.events_received():
            if isinstance(event, Frame) and event.opcode in _DATA:
                self._frame(event)
        self._flush()

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        self._parts.append(bytes(frame.data))
        if frame.fin:
            message, self._parts = b"".join(self._parts), []
            self._begin(message, text=self._text)

    def _begin(self, message: bytes, *, text: bool) -> None:
        site = self._site
        tally = site.counter.tally("ws")
        tally.begun += 1
        self._under_way.append(tally)
        delay = site.delay()
        if not delay and not site.stalled_until and not self._last:
            self._send(message, text, tally)
            return
        # messages keep their order, whatever their delays
        self._last = max(self._last, site.due(self._read, delay))
        site.timers.at(self._last, self._due, message, text, tally, self._read, self._last)

    def _due(self, message: bytes, text: bool, tally: PathTally, begun: float, due: float) -> None:
        if self._transport.is_closing():
            return
        if due == self._last:
            self._last = 0.0
        self._send(message, text, tally)
        self._flush()
        self._site.counter.delays.add(due - begun, _now() - begun)

    def _send(self, message: bytes, text: bool, tally: PathTally) -> None:
        if self._wire.state is not OPEN:
            return
        try:
            (self._wire.send_text if text else self._wire.send_binary)(message)
        except ConnectionClosed:
            return
        self._under_way.remove(tally)
        tally.statuses["echoed"] += 1

    def _flush(self) -> None:
        for data in self._wire.data_to_send():
            if data:
                self._write(data)
                self._site.counter.sent += len(data)
            else:
                self._transport.close()
