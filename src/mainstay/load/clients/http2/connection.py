"""An HTTP/2 connection, and the calls that are under way on it."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import AsyncIterable
from typing import Any, cast

from ....errors import CallFailed
from ...prepared import URLParts
from ...results import Opening
from ..call_limits import PendingCall, TimeoutWatch
from ..http.calls import HTTPCall, Upload
from ..http.stream import Stream
from ..network import Network, Timeouts
from ..transport import DirectTransport, open_transport
from . import frames as f
from .exchange import Exchange, NotProcessed
from .fields import block_of, head_of
from .response import HTTP2Response
from .send_window import HIGH, SendWindow

_now = time.perf_counter
#: flow-control windows for the server: of one response, and of the connection
STREAM_WINDOW = 8 * 1024 * 1024
WINDOW = 64 * 1024 * 1024
_HELLO = (
    f.PREFACE
    + f.settings({f.HEADER_TABLE_SIZE: 0, f.ENABLE_PUSH: 0, f.INITIAL_WINDOW_SIZE: STREAM_WINDOW})
    + f.frame(f.WINDOW_UPDATE, 0, 0, f.number(WINDOW - f.USUAL_WINDOW))
)


class HTTP2Connection:
    """A connection of one user to one origin."""

    def __init__(self, network: Network, parts: URLParts) -> None:
        self._network = network
        self.watch = TimeoutWatch()
        self._parts = parts
        self._transport: DirectTransport | None = None
        self._reader = f.FrameReader()
        self._exchanges: dict[int, Exchange] = {}
        self._calls: dict[int, HTTPCall] = {}
        self._next = 1
        self._most = 100
        """concurrent calls that the server accepts, until its settings arrive"""
        self._sending = SendWindow()
        self._unread = 0
        self._heading: tuple[f.Frame, bytes] | None = None
        """incomplete headers of a response"""
        self._waiters: collections.deque[asyncio.Future[None]] = collections.deque()
        self._heard = False
        self._answered = False
        self.retired = False
        """accepts no further calls"""
        self._failure: CallFailed | None = None
        """why it was lost, or the protocol error of the server"""

    async def open(self, limits: Timeouts) -> Opening:
        line, opening = await open_transport(
            self._network,
            self._parts,
            limits,
            alpn=("h2",),
            on_data=self._came,
            on_end=self._lost,
            on_written=lambda: None,
        )
        if self._parts.secure and line.protocol != "h2":
            line.close()
            raise CallFailed("protocol", f"{self._parts.shown} does not offer HTTP/2; call it with self.client.http")
        self._transport = line
        line.write(_HELLO)
        return opening

    # calls

    @property
    def full(self) -> bool:
        return len(self._exchanges) >= self._most

    def failure(self) -> CallFailed:
        """The error for a call that could not be sent on this connection."""
        shown = self._parts.shown
        if self._failure is None:
            return NotProcessed("goaway", f"{shown} accepts no calls on a new connection")
        return CallFailed(self._failure.kind, str(self._failure))

    async def room(self) -> None:
        """Wait until another call can begin; the connection may be retired then."""
        while self.full and not self.retired:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake()
                raise

    def start(self, call: HTTPCall, waiting: PendingCall, opening: Opening | None) -> Exchange:
        """Send a call; `waiting` gets its response."""
        line = self._transport
        assert line is not None
        number, self._next = self._next, self._next + 2
        if self._next > f.LARGEST_WINDOW:
            self.retired = True
        exchange = Exchange(self, number, call, waiting, opening, self._sending.stream_window)
        self._exchanges[number] = exchange
        self._calls[number] = call
        self._network.sent += 1
        bare = exchange.whole and not exchange.left
        out = self._sending.headers(number, block_of(call), f.END_STREAM if bare else 0)
        if not bare:
            waiting.writing = True
            out += self._sending.data(exchange)
        exchange.sent = len(out)
        line.write(out)
        exchange.written = _now()
        if call.upload is not None:
            exchange.uploading = asyncio.get_running_loop().create_task(self._send_up(exchange, call.upload))
        return exchange

    def give_up(self, exchange: Exchange) -> None:
        """Abort a call: its caller does not want it any more."""
        if self._exchanges.get(exchange.id) is exchange:
            self._network.abort(exchange.sent, exchange.received)
            self.drop(exchange)

    def leave(self, exchange: Exchange) -> None:
        """The reader of the stream stops. That is a normal end: an endless stream has no other."""
        if self._exchanges.get(exchange.id) is exchange and exchange.stream is not None:
            if not exchange.waiting.goes_on(_now()):
                return
            self._network.answered += 1
            self.drop(exchange)
            exchange.waiting.settle(None)
            exchange.stream.finish(_now(), exchange.received)

    def drop(self, exchange: Exchange) -> None:
        """Forget an unfinished call, and reset its stream."""
        if self._exchanges.get(exchange.id) is exchange:
            self._forget(exchange)
            self._write(f.frame(f.RST_STREAM, 0, exchange.id, f.number(f.CANCEL)))

    def close(self) -> None:
        """Abort all calls under way."""
        closed = CallFailed("closed", "the session was closed while the call was under way")
        for exchange in tuple(self._exchanges.values()):
            self._network.abort(exchange.sent, exchange.received)
            self._fail(exchange, closed)
        self._end()

    def took(self, exchange: Exchange) -> None:
        """The response was read so far: the server may send more."""
        if exchange.unread >= STREAM_WINDOW // 2 and not exchange.paused and not exchange.ended:
            self._write(f.frame(f.WINDOW_UPDATE, 0, exchange.id, f.number(exchange.unread)))
            exchange.unread = 0

    # sending

    def _pour(self) -> None:
        for exchange in tuple(self._exchanges.values()):
            if exchange.left:
                self._send_data(exchange)

    def _send_data(self, exchange: Exchange) -> None:
        out = self._sending.data(exchange)
        exchange.sent += len(out)
        self._write(out)

    async def _send_up(self, exchange: Exchange, upload: Upload) -> None:
        """Send a body while it is made."""
        try:
            if isinstance(upload, AsyncIterable):
                async for piece in upload:
                    await self._push(exchange, piece)
            else:
                for piece in upload:
                    await self._push(exchange, piece)
            exchange.whole = True
            self._send_data(exchange)
        except Exception as error:  # noqa: BLE001  an error of the test's own code is raised in its step
            if self._exchanges.get(exchange.id) is exchange:
                self._network.aborted += 1
                self.drop(exchange)
                exchange.waiting.fail(error)

    async def _push(self, exchange: Exchange, piece: bytes) -> None:
        exchange.left += piece
        self._send_data(exchange)
        while len(exchange.left) >= HIGH:
            exchange.room = asyncio.get_running_loop().create_future()
            await exchange.room

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    # receiving

    def _came(self, data: bytes) -> None:
        now = _now()
        if not self._heard:
            self._heard = True
            if data.startswith(b"HTTP/1"):
                self._broken(
                    CallFailed("protocol", f"{self._parts.shown} speaks HTTP/1.1; call it with self.client.http")
                )
                return
        try:
            for found in self._reader.feed(data):
                self._take(found, now)
        except CallFailed as error:
            self._broken(error)
            return
        if self.retired and not self._exchanges:
            self._end()

    def _take(self, found: f.Frame, now: float) -> None:
        if self._heading is not None and found.kind != f.CONTINUATION:
            raise CallFailed("protocol", "the server sent incomplete headers")
        kind = found.kind
        if kind == f.HEADERS:
            self._take_headers(found, f.content(found), now)
        elif kind == f.DATA:
            self._take_data(found, now)
        elif kind == f.CONTINUATION:
            if self._heading is None or self._heading[0].stream != found.stream:
                raise CallFailed("protocol", "the server sent a CONTINUATION frame without HEADERS")
            first, block = self._heading
            self._heading = None
            flags = first.flags | found.flags & f.END_HEADERS
            self._take_headers(first._replace(flags=flags), block + found.payload, now)
        else:
            self._take_other(kind, found)

    def _take_other(self, kind: int, found: f.Frame) -> None:
        """Frames about the connection, or that end a call."""
        if kind == f.WINDOW_UPDATE:
            self._take_window(found)
        elif kind == f.SETTINGS:
            self._take_settings(found)
        elif kind == f.PING:
            if not found.flags & f.ACK:
                self._write(f.frame(f.PING, f.ACK, 0, found.payload))
        elif kind == f.RST_STREAM:
            self._take_reset(found)
        elif kind == f.GOAWAY:
            self._take_goaway(found)
        elif kind == f.PUSH_PROMISE:
            raise CallFailed("protocol", "the server pushed a response, although push is disabled")

    def _take_headers(self, found: f.Frame, block: bytes, now: float) -> None:
        if not found.flags & f.END_HEADERS:
            if len(block) > 16 * f.USUAL_FRAME:
                raise CallFailed("protocol", "the headers of the response are larger than 256 KB")
            self._heading = (found, block)
            return
        exchange = self._exchanges.get(found.stream)
        if exchange is None:
            return
        exchange.received += 9 + len(block)
        if not exchange.waiting.goes_on(now):
            return  # its caller drops it
        if exchange.head is None:
            head = head_of(block)
            exchange.first = exchange.first or now
            # 103 Early Hints and other interim responses come before the final one
            if head.status < 200:
                return
            exchange.head = head
            if self._calls[found.stream].stream and head.location is None:
                self._start_stream(exchange)
        if found.ends:
            self._finish(exchange, now)

    def _take_data(self, found: f.Frame, now: float) -> None:
        size = len(found.payload)
        self._unread += size
        if self._unread >= WINDOW // 2:
            self._write(f.frame(f.WINDOW_UPDATE, 0, 0, f.number(self._unread)))
            self._unread = 0
        exchange = self._exchanges.get(found.stream)
        if exchange is None:
            return
        if exchange.head is None:
            raise CallFailed("protocol", "the server sent the body of a response before its headers")
        piece = f.content(found) if found.flags & f.PADDED else found.payload
        exchange.received += 9 + size
        exchange.size += len(piece)
        if not exchange.waiting.goes_on(now):
            return
        if piece:
            exchange.parts.append(piece)
        if found.ends:
            self._finish(exchange, now)
            return
        exchange.unread += size
        if exchange.stream is not None:
            exchange.stream.arrived()
        self.took(exchange)

    def _take_window(self, found: f.Frame) -> None:
        more = f.number_of(found.payload) & f.LARGEST_WINDOW
        if found.stream == 0:
            self._sending.window += more
        elif (exchange := self._exchanges.get(found.stream)) is not None:
            exchange.window += more
        self._pour()

    def _take_settings(self, found: f.Frame) -> None:
        if found.flags & f.ACK:
            return
        settings = f.settings_of(found.payload)
        self._most = settings.get(f.MAX_CONCURRENT_STREAMS, self._most if self._answered else f.LARGEST_WINDOW)
        self._answered = True
        self._sending.settle(settings, self._exchanges.values())
        self._write(f.frame(f.SETTINGS, f.ACK, 0))
        self._pour()
        for _ in range(len(self._waiters)):
            self._wake()

    def _take_reset(self, found: f.Frame) -> None:
        code = f.number_of(found.payload)
        exchange = self._exchanges.get(found.stream)
        if exchange is None:
            return
        shown = exchange.waiting.what
        if code == f.REFUSED_STREAM:
            self._fail(exchange, NotProcessed("refused stream", f"{shown}: the server refused the call"))
        else:
            self._fail(exchange, CallFailed("reset", f"{shown}: the server ended the call with {f.code_name(code)}"))

    def _take_goaway(self, found: f.Frame) -> None:
        """The server accepts no more calls; it still answers those up to a number."""
        last, code = f.number_of(found.payload) & f.LARGEST_WINDOW, f.number_of(found.payload, 4)
        self.retired = True
        shown, why = self._parts.shown, f.code_name(code)
        for number in [number for number in self._exchanges if number > last]:
            self._fail(self._exchanges[number], NotProcessed("goaway", f"{shown} accepts no more calls ({why})"))
        for _ in range(len(self._waiters)):
            self._wake()

    # ends of calls

    def _start_stream(self, exchange: Exchange) -> None:
        response = self._response(exchange, b"", _now())
        # an exchange has the interface of both a connection and a body of HTTP/1.1
        exchange.stream = response.stream = Stream(cast("Any", exchange), cast("Any", exchange), response)
        before = exchange.waiting
        exchange.waiting = PendingCall(started=before.started, limits=before.limits, what=before.what)
        exchange.waiting.future.add_done_callback(lambda done: self._stream_over(exchange, done))
        self.watch.add(exchange.waiting)
        before.settle(response)

    def _stream_over(self, exchange: Exchange, done: asyncio.Future[Any]) -> None:
        self.watch.discard(exchange.waiting)
        error = None if done.cancelled() else done.exception()
        if isinstance(error, CallFailed) and exchange.stream is not None:
            self.drop(exchange)
            exchange.stream.fail(error, _now())

    def _finish(self, exchange: Exchange, now: float) -> None:
        call, head = self._calls[exchange.id], exchange.head
        assert head is not None
        unsent = bool(exchange.left) or not exchange.whole
        exchange.ended = True
        if 0 <= head.length != exchange.size and call.method != "HEAD":
            sizes = f"{exchange.size} of {head.length} announced bytes"
            self._fail(exchange, CallFailed("protocol", f"{exchange.waiting.what}: the server sent {sizes}"))
            return
        self._forget(exchange)
        if unsent:
            self._write(f.frame(f.RST_STREAM, 0, exchange.id, f.number(f.NO_ERROR)))
        self._network.answered += 1
        if exchange.stream is not None:
            exchange.stream.finish(now, exchange.received)
            exchange.waiting.settle(None)
            return
        body = exchange.parts[0] if len(exchange.parts) == 1 else b"".join(exchange.parts)
        response = self._response(exchange, body, now, call)
        if head.encoding and head.location is None and (broken := response.broken_body()) is not None:
            exchange.waiting.fail(broken)
        else:
            exchange.waiting.settle(response)

    def _response(self, exchange: Exchange, body: bytes, now: float, call: HTTPCall | None = None) -> HTTP2Response:
        assert exchange.head is not None
        response = HTTP2Response(
            call or self._calls[exchange.id],
            exchange.head,
            body,
            exchange.waiting.started,
            exchange.written,
            exchange.first,
            now,
            exchange.received,
            exchange.opening,
        )
        response.sent = exchange.sent
        return response

    def _fail(self, exchange: Exchange, error: CallFailed) -> None:
        self._forget(exchange)
        exchange.waiting.fail(error)

    def _forget(self, exchange: Exchange) -> None:
        del self._exchanges[exchange.id], self._calls[exchange.id]
        if exchange.uploading is not None and not exchange.whole:
            exchange.uploading.cancel()
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # ends of the connection

    def _lost(self, error: CallFailed) -> None:
        self._failure = error
        for exchange in tuple(self._exchanges.values()):
            call = self._calls[exchange.id]
            if exchange.head is None and call.repeatable and self._answered and exchange.id > 1:
                # as with HTTP/1.1: the server closed an idle connection before it got the call
                self._fail(exchange, NotProcessed(error.kind, str(error)))
            else:
                self._fail(exchange, error)
        self._end()

    def _broken(self, error: CallFailed) -> None:
        self._failure = error
        self._write(f.frame(f.GOAWAY, 0, 0, f.number(0) + f.number(f.PROTOCOL_ERROR)))
        for exchange in tuple(self._exchanges.values()):
            self._fail(exchange, error)
        self._end()

    def _end(self) -> None:
        self.retired = True
        self.watch.stop()
        if self._transport is not None:
            self._transport.close()
        for _ in range(len(self._waiters)):
            self._wake()
