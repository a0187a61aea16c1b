"""HTTP/2 of the target: the same routes, many requests at a time. Bytes are counted for the whole connection."""

from __future__ import annotations

import time
from typing import Any

from ..extra import extra_needed
from .connections import CountedConnection
from .counts import BROKEN, PathTally
from .message import Request, TargetResponse
from .site import Site

with extra_needed("HTTP/2"):
    import h2.config
    import h2.connection
    import h2.errors
    import h2.events
    import h2.exceptions
    import h2.settings

MOST_STREAMS = 1000
_now = time.perf_counter
_SETTINGS = {
    h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
    h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20,
}


class _Stream:
    """A request, and the rest of its response."""

    __slots__ = ("answer", "body", "ended", "headers", "left", "request", "tally")

    def __init__(self, headers: list[tuple[str, str]]) -> None:
        self.headers = headers
        self.body: list[bytes] = []
        self.request: Request | None = None
        self.answer: TargetResponse | None = None
        self.tally: PathTally | None = None
        self.left = bytearray()
        """the part of the body beyond the window of the client"""
        self.ended = False
        """whether `left` is complete"""


class HTTP2ServerConnection(CountedConnection):
    """Takes over a connection that was counted when it opened."""

    def __init__(self, site: Site, open_connections: set[Any]) -> None:
        super().__init__(site, open_connections)
        self._streams: dict[int, _Stream] = {}
        self._read = 0.0
        """the time of the last read"""
        self._wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self._wire.local_settings = h2.settings.Settings(client=False, initial_values=_SETTINGS)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wire.initiate_connection()
        self._flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        for stream_id in list(self._streams):
            self._forget(stream_id)

    def data_received(self, data: bytes) -> None:
        self._read = _now()
        self._site.counter.received += len(data)
        try:
            events = self._wire.receive_data(data)
            for event in events:
                self._take(event)
        except h2.exceptions.ProtocolError:
            self._flush()
            self._transport.close()
            return
        self._flush()

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                self._streams[event.stream_id] = _Stream([(str(k), str(v)) for k, v in event.headers or ()])
            case h2.events.DataReceived():
                if event.stream_id in self._streams:
                    self._streams[event.stream_id].body.append(event.data or b"")
                self._wire.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
            case h2.events.StreamEnded():
                if event.stream_id in self._streams:
                    self._begin(event.stream_id, self._streams[event.stream_id])
            case h2.events.StreamReset():
                self._forget(event.stream_id)
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                for stream_id in list(self._streams):
                    self._pour(stream_id)
            case h2.events.ConnectionTerminated():
                self._transport.close()
            case _:
                pass

    def _forget(self, stream_id: int | None) -> None:
        stream = self._streams.pop(stream_id or 0, None)
        if stream is not None and stream.tally is not None:
            stream.tally.abandoned += 1

    def _begin(self, stream_id: int, stream: _Stream) -> None:
        site = self._site
        pseudo = {name: value for name, value in stream.headers if name.startswith(":")}
        stream.request = request = Request(
            pseudo.get(":method", "GET"),
            pseudo.get(":path", "/"),
            headers=[pair for pair in stream.headers if not pair[0].startswith(":")],
            body=b"".join(stream.body),
            version="2",
        )
        if request.control:
            self._not_counted()
        else:
            stream.tally = site.begin(request)
        stream.answer, delay = site.answer(request, self._transport)
        if not request.control and (delay or site.stalled_until):
            due = site.due(self._read, delay)
            site.timers.at(due, self._due, stream_id, stream, self._read, due)
        else:
            self._send(stream_id, stream)

    def _due(self, stream_id: int, stream: _Stream, begun: float, due: float) -> None:
        if self._streams.get(stream_id) is not stream:
            return
        site = self._site
        if site.stalled_until > _now():
            until = site.stalled_until
            site.timers.at(until, self._due, stream_id, stream, begun, until)
            return
        self._send(stream_id, stream)
        self._flush()
        site.counter.delays.add(due - begun, _now() - begun)

    def _send(self, stream_id: int, stream: _Stream) -> None:
        answer, request = stream.answer, stream.request
        assert answer is not None
        assert request is not None
        if answer.status in BROKEN:
            self._break(stream_id, stream, answer)
            return
        headers = [(":status", str(answer.status)), *answer.headers]
        if not answer.pieces and answer.status not in (204, 304):
            headers.append(("content-length", str(len(answer.body))))
        empty = request.method == "HEAD" or not (answer.body or answer.pieces)
        self._wire.send_headers(stream_id, headers, end_stream=empty)
        if empty:
            self._finish(stream_id, stream)
        elif answer.gap:
            due = _now() + answer.gap
            self._site.timers.at(due, self._piece, stream_id, stream, 0, due)
        else:
            stream.left += answer.body or b"".join(answer.pieces)
            stream.ended = True
            self._pour(stream_id)

    def _piece(self, stream_id: int, stream: _Stream, at: int, due: float) -> None:
        answer = stream.answer
        if self._streams.get(stream_id) is not stream or answer is None:
            return
        stream.left += answer.pieces[at]
        if at + 1 < len(answer.pieces):
            due += answer.gap
            self._site.timers.at(due, self._piece, stream_id, stream, at + 1, due)
        else:
            stream.ended = True
        self._pour(stream_id)
        self._flush()

    def _pour(self, stream_id: int) -> None:
        """Send as much of a body as the client accepts."""
        stream = self._streams[stream_id]
        wire = self._wire
        while stream.left:
            room = min(wire.local_flow_control_window(stream_id), wire.max_outbound_frame_size)
            if room <= 0:
                return
            part = bytes(stream.left[:room])
            del stream.left[:room]
            wire.send_data(stream_id, part, end_stream=stream.ended and not stream.left)
        if stream.ended:
            self._finish(stream_id, stream)

    def _finish(self, stream_id: int, stream: _Stream) -> None:
        del self._streams[stream_id]
        if stream.tally is not None and stream.answer is not None:
            stream.tally.statuses[stream.answer.status] += 1

    def _break(self, stream_id: int, stream: _Stream, answer: TargetResponse) -> None:
        self._finish(stream_id, stream)
        if answer.status == "reset":
            self._wire.reset_stream(stream_id, h2.errors.ErrorCodes.CANCEL)
        else:
            self._transport.close()

    def _flush(self) -> None:
        data = self._wire.data_to_send()
        if data:
            self._write(data)
            self._site.counter.sent += len(data)
