"""HTTP/1.1 of the target.

A request that repeats earlier bytes in one piece is not parsed again, and may have a cached response. That makes the
target fast enough for a generator with a core of its own.
"""

from __future__ import annotations

import functools
import http
import socket
import struct
import time
from collections import deque
from typing import Any

from ..extra import extra_needed
from .connections import CountedConnection
from .counts import BROKEN, PathTally
from .due_responses import PausingProtocol
from .message import Request, TargetResponse
from .site import Site

with extra_needed("the target of load tests"):
    import httptools

MOST_KNOWN = 2000
LONGEST_KNOWN = 4096
_PREFACE = b"PRI "
_now = time.perf_counter
_LINGER_NOT = struct.pack("ii", 1, 0)


class HTTP1ServerConnection(PausingProtocol, CountedConnection):
    """An HTTP/1.1 connection, until it switches to another protocol."""

    def __init__(self, site: Site, open_connections: set[Any]) -> None:
        super().__init__(site, open_connections)
        self._busy = False
        self._waiting: deque[Request] = deque()
        self._under_way: PathTally | None = None
        self._unclaimed = 0
        self._begun = False
        self._parsed: list[Request] = []
        self._parser: Any = None
        self._in_message = False
        self._fresh()

    # callbacks of the transport

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._count()
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self._switch_to_http2(b"")

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._under_way is not None:
            self._under_way.abandoned += 1
            self._under_way = None
        self._busy = True
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        site = self._site
        request = site.known.get(data)
        if request is None or self._in_message:
            self._parse(data)
        elif request.wire and not self._busy and not site.stalled_until:
            tally = request.tally
            assert tally is not None
            tally.begun += 1
            self._write(request.wire)
            tally.statuses[200] += 1
            counter = site.counter
            counter.received += len(data)
            counter.sent += len(request.wire)
        else:
            at = _now()
            self._unclaimed += len(data)
            self._waiting.append(request)
            self._work(at)

    # callbacks of the parser

    def on_message_begin(self) -> None:
        self._in_message = True
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        if any(name == "expect" and value.lower() == "100-continue" for name, value in self._headers):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        parser = self._parser
        self._parsed.append(
            Request(
                parser.get_method().decode(),
                self._target.decode("latin-1"),
                headers=self._headers,
                body=b"".join(self._body),
                version=parser.get_http_version(),
                keep_alive=parser.should_keep_alive(),
            )
        )

    # from bytes to requests

    def _fresh(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def _parse(self, data: bytes) -> None:
        at = _now()
        if not self._begun:
            self._begun = True
            if data.startswith(_PREFACE):
                self._switch_to_http2(data)
                return
        self._unclaimed += len(data)
        whole = not self._in_message
        rest = b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._upgraded(rest):
                return
            self._fresh()
        except httptools.HttpParserError as error:
            self._refuse(str(error))
            return
        parsed, self._parsed = self._parsed, []
        if whole and len(parsed) == 1 and not self._in_message and not rest and len(data) <= LONGEST_KNOWN:
            self._remember(data, parsed[0])
        self._waiting.extend(parsed)
        self._work(at)
        if rest:
            self._parse(rest)

    def _remember(self, data: bytes, request: Request) -> None:
        site = self._site
        if request.header("expect") or request.header("upgrade"):
            return
        if len(site.known) >= MOST_KNOWN:
            site.known.clear()
        site.known[data] = request

    def _refuse(self, why: str) -> None:
        body = f"not an HTTP request: {why}\n".encode()
        self._transport.write(encoded(TargetResponse(400, body), close=True))
        self._transport.close()

    # from requests to responses, one at a time and in order

    def _work(self, at: float) -> None:
        """`at`: when the request was read, or the one before it was done."""
        while self._waiting and not self._busy:
            self._begin(self._waiting.popleft(), at)

    def _begin(self, request: Request, at: float) -> None:
        site = self._site
        self._busy = True
        size, self._unclaimed = self._unclaimed, 0
        if request.control:
            self._not_counted()
            answer, _ = site.answer(request, self._transport)
            self._send(request, answer, None)
            return
        site.counter.received += size
        self._under_way = tally = site.begin(request)
        answer, delay = site.answer(request, self._transport)
        if delay or site.stalled_until:
            due = site.due(at, delay)
            site.timers.at(due, self._due, request, answer, tally, at, due)
            return
        usual = request.method != "HEAD" and request.keep_alive and request.version == "1.1"
        if usual and answer.status == 200 and site.always_same(request):
            request.tally, request.wire = tally, encoded(answer)
        self._send(request, answer, tally)

    def _due(self, request: Request, answer: TargetResponse, tally: PathTally, begun: float, due: float) -> None:
        if self._under_way is not tally:
            return
        site = self._site
        if site.stalled_until > _now():
            until = site.stalled_until
            site.timers.at(until, self._due, request, answer, tally, begun, until)
            return
        self._send(request, answer, tally)
        written = _now()
        site.counter.delays.add(due - begun, written - begun)
        self._work(written)

    def _send(self, request: Request, answer: TargetResponse, tally: PathTally | None) -> None:
        if answer.status in BROKEN:
            self._break(answer, tally)
            return
        bare = request.method == "HEAD"
        self._put(encoded(answer, close=_last(request, answer), old=request.version == "1.0", bare=bare), tally)
        if bare or not answer.pieces:
            self._finish(request, answer, tally)
        elif answer.gap:
            due = _now() + answer.gap
            self._site.timers.at(due, self._stream_on, request, answer, tally, 0, due)
        else:
            self._stream(request, answer, tally, 0, 0.0)

    def _stream(self, request: Request, answer: TargetResponse, tally: PathTally | None, at: int, due: float) -> None:
        """Write pieces from `at` on, up to the next pause."""
        old = request.version == "1.0"
        for piece in answer.pieces[at:]:
            self._put(piece if old else b"%x\r\n%b\r\n" % (len(piece), piece), tally)
            at += 1
            if answer.gap and at < len(answer.pieces):
                due += answer.gap
                self._site.timers.at(due, self._stream_on, request, answer, tally, at, due)
                return
        if not old:
            self._put(b"0\r\n\r\n", tally)
        self._finish(request, answer, tally)

    def _stream_on(
        self, request: Request, answer: TargetResponse, tally: PathTally | None, at: int, due: float
    ) -> None:
        if self._under_way is tally:
            self._stream(request, answer, tally, at, due)
            self._work(_now())

    def _put(self, data: bytes, tally: PathTally | None) -> None:
        self._write(data)
        if tally is not None:
            self._site.counter.sent += len(data)

    def _finish(self, request: Request, answer: TargetResponse, tally: PathTally | None) -> None:
        self._under_way = None
        if tally is not None:
            tally.statuses[answer.status] += 1
        if _last(request, answer):
            self._transport.close()
        else:
            self._busy = False

    def _break(self, answer: TargetResponse, tally: PathTally | None) -> None:
        """End the connection without a response; further requests on it are ignored."""
        self._under_way = None
        if tally is not None:
            tally.statuses[answer.status] += 1
        if answer.status == "reset":
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            self._transport.abort()
        else:
            self._transport.close()

    # other protocols

    def _upgraded(self, rest: bytes) -> bool:
        """Whether another protocol took over."""
        request = self._parsed[-1]
        if request.path != "/ws" or request.header("upgrade").lower() != "websocket":
            return False
        from .websocket import WebsocketServerConnection  # noqa: PLC0415  most targets never speak it

        self._site.counter.received += self._unclaimed
        self._hand_over(WebsocketServerConnection(self._site, self._open, request), rest)
        return True

    def _switch_to_http2(self, data: bytes) -> None:
        from .http2 import HTTP2ServerConnection  # noqa: PLC0415  most targets never speak it

        self._hand_over(HTTP2ServerConnection(self._site, self._open), data)

    def _hand_over(self, protocol: Any, data: bytes) -> None:
        self._busy = True
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if data:
            protocol.data_received(data)


def _last(request: Request, answer: TargetResponse) -> bool:
    """Whether the connection ends with this response. HTTP/1.0 has no other end for a body of unknown length."""
    return not request.keep_alive or (request.version == "1.0" and bool(answer.pieces))


def encoded(answer: TargetResponse, *, close: bool = False, old: bool = False, bare: bool = False) -> bytes:
    """The bytes of a response, or only its head if the body comes later or not at all (`bare`)."""
    if answer.wire and not (close or old or bare):
        return answer.wire
    lines = [f"HTTP/1.1 {answer.status} {_reason(int(answer.status))}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if not answer.pieces:
        if answer.status not in (204, 304):
            lines.append(f"content-length: {len(answer.body)}")
    elif not old:
        lines.append("transfer-encoding: chunked")
    if close:
        lines.append("connection: close")
    elif old:
        lines.append("connection: keep-alive")
    head = "\r\n".join((*lines, "", "")).encode("latin-1")
    if bare:
        return head
    wire = head + answer.body
    if not (close or old):
        answer.wire = wire
    return wire


@functools.cache
def _reason(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Asked For"
