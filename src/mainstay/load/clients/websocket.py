"""WebSocket: a connection, or single calls that send a message and wait for the next one.

A server may send messages by itself. A message that arrived before a request was sent cannot be its response: a request
discards it and counts it as unexpected. A test that wants such messages takes them with `receive`, and recognizes
responses with `match`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import CallFailed, InvalidInput
from ..extra import extra_needed
from ..prepared import URL, Data, Headers, URLParts, joined
from ..results import Opening
from .call_limits import PendingCall, bytes_of, in_time
from .connection_cache import parts_of
from .http.options import Timeout, headers_of
from .messages import MessageClient, MessageConnection
from .network import Network, Timeouts
from .responses import WebsocketResponse
from .transport import open_transport

with extra_needed("WebSocket"):
    from websockets.client import ClientProtocol
    from websockets.exceptions import InvalidStatus
    from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
    from websockets.frames import CloseCode, Frame, Opcode
    from websockets.http11 import Response
    from websockets.protocol import CLOSED, CLOSING, CONNECTING, OPEN
    from websockets.typing import Subprotocol
    from websockets.uri import parse_uri

__all__ = ["WebsocketClient", "WebsocketConnection", "WebsocketResponse"]

_now = time.perf_counter
_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
#: messages that are kept for `receive`; the oldest ones are dropped
MOST_HELD = 10_000
Calling = Coroutine[Any, Any, WebsocketResponse]
Match = Callable[[str | bytes], bool]


class _ReceivedMessage(NamedTuple):
    content: bytes
    text: bool
    first: float
    ended: float
    size: int

    @property
    def data(self) -> str | bytes:
        return self.content.decode("utf-8", "replace") if self.text else self.content


class _Handshake(NamedTuple):
    """The options of the opening handshake."""

    headers: Headers | None
    subprotocols: tuple[str, ...]
    compress: bool


_PLAIN = _Handshake(None, (), False)
_NOTHING = _ReceivedMessage(b"", False, 0.0, 0.0, 0)
#: time limit of the closing handshake
_GOODBYE = Timeouts(total=1.0)


class WebsocketConnection(MessageConnection):
    """One connection. Only one call at a time can receive; others can send."""

    def __init__(self, network: Network, parts: URLParts, handshake: _Handshake = _PLAIN) -> None:
        super().__init__(network, parts)
        self._handshake = handshake
        self._wire = _protocol(parts, handshake)
        self._pieces: list[bytes] = []
        self._text = False
        self._first = 0.0
        self._size = 0
        self._held: collections.deque[_ReceivedMessage] = collections.deque()
        self._match: Match | None = None
        self._gone = 0.0
        self.response: WebsocketResponse | None = None
        """of the opening handshake: status 101, its times and bytes"""

    @property
    def subprotocol(self) -> str | None:
        """The negotiated subprotocol."""
        return self._wire.subprotocol

    def send(self, data: Any, *, timeout: Timeout | None = None) -> Calling:
        """Send a message, and be done when the system has taken it. Text goes as text, bytes as bytes, data as JSON."""
        return self._call(data, answered=False, limits=self._limits(timeout))

    def receive(self, *, timeout: Timeout | None = None) -> Calling:
        """The next message, also one that has arrived already."""
        return self._call(None, answered=True, limits=self._limits(timeout))

    def request(self, data: Any, *, timeout: Timeout | None = None, match: Match | None = None) -> Calling:
        """Send a message, and wait for its response: the next message.

        `match` decides whether a received message is the response; the others are left for `receive`. Without `match`,
        earlier messages are discarded.
        """
        return self._call(data, answered=True, limits=self._limits(timeout), match=match)

    async def close(self, code: int = CloseCode.NORMAL_CLOSURE) -> None:
        """Send a close frame, and wait a moment for that of the other side."""
        if self.usable and self._wire.state is OPEN:
            self._wire.send_close(code)
            self._flush()
            self._waiting, self._match = PendingCall(started=_now(), limits=_GOODBYE, what=self._parts.shown), _never
            waiting = self._waiting
            with contextlib.suppress(CallFailed):
                await self._watch.answer(waiting)
            self._waiting = None
        self.give_up()

    async def open(self, started: float, limits: Timeouts) -> Opening:
        """Open the connection; its times. The handshake is part of connecting."""
        async with in_time(limits, started, self._parts.shown):
            self._transport, opening = await open_transport(
                self._network,
                self._parts,
                limits,
                alpn=("http/1.1",),
                on_data=self._received,
                on_end=self._lost,
                on_written=self._written,
            )
        self._waiting, self._match = PendingCall(started=started, limits=limits, what=self._parts.shown), None
        waiting = self._waiting
        request = self._wire.connect()
        if self._parts.auth is not None:
            request.headers["Authorization"] = self._parts.auth.decode()
        for name, value in (self._handshake.headers.value if self._handshake.headers else {}).items():
            request.headers[name] = value
        self._wire.send_request(request)
        try:
            sent = self._flush()
            message: _ReceivedMessage = await self._watch.answer(waiting)
        except BaseException:
            self._waiting = None
            self.give_up()
            raise
        self._waiting = None
        self.response = self._result(started, message, sent, opening, status=101)
        took = self.response.ended - self._gone
        return opening._replace(connect=opening.connect + took)

    async def _call(
        self, data: Any, *, answered: bool, limits: Timeouts, started: float = 0.0, match: Match | None = None
    ) -> WebsocketResponse:
        started = started or _now()
        network = self._network
        opening = await self.open(started, limits) if self._transport is None else None
        if network.lease.is_over():
            await network.lease.wait()
        if data is not None and answered and self._waiting is None and self._transport is not None:
            self._transport.poll()
            if match is None:
                self._discard()
        if self._ended is not None and not (data is None and self._held):
            raise self._ended
        if self._waiting is not None and answered:
            raise InvalidInput(
                "websocket", "another call receives on this connection; wait for it, or open another connection"
            )
        waiting = PendingCall(started=started, limits=limits, what=self._parts.shown)
        if answered:
            self._waiting, self._match = waiting, match
        network.sent += data is not None
        sent = 0
        try:
            sent = self._send(data) if data is not None else 0
            message = await self._next(waiting, answered=answered, asked=data is not None)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and data is not None:
                network.abort(sent, self._size)
            self._waiting = None
            self.give_up()
            if isinstance(error, CallFailed):
                raise error.of_call(sent, self._size) from None
            raise
        if answered:
            self._waiting = None
        network.answered += data is not None
        return self._result(started, message, sent, opening)

    def _result(
        self, started: float, message: _ReceivedMessage, sent: int, opening: Opening | None, status: int | str = "ok"
    ) -> WebsocketResponse:
        now = _now()
        result = WebsocketResponse(
            message.content,
            started=started,
            written=max(self._gone, started),
            first=message.first or now,
            ended=message.ended or now,
            opening=opening,
            sent=sent,
            received=message.size,
            status=status,
        )
        result.is_text = message.text
        return result

    def _send(self, data: Any) -> int:
        if isinstance(data, str) or not isinstance(data, bytes | bytearray | memoryview | Data):
            self._wire.send_text(bytes_of(data))
        elif isinstance(data, Data) and not isinstance(data.value, bytes | bytearray | memoryview):
            self._wire.send_text(data.body)
        else:
            self._wire.send_binary(bytes_of(data))
        return self._flush()

    async def _next(self, waiting: PendingCall, *, answered: bool, asked: bool) -> _ReceivedMessage:
        now = _now()
        if not waiting.goes_on(now):
            pass
        elif not answered:
            waiting.settle(_NOTHING._replace(first=now, ended=now))
        elif self._held and not asked:
            # it arrived before the step waited for it, so it took no time
            waiting.settle(self._held.popleft()._replace(first=now, ended=now))
        message: _ReceivedMessage = await self._watch.answer(waiting)
        return message

    def _flush(self) -> int:
        line = self._transport
        assert line is not None
        size = 0
        for data in self._wire.data_to_send():
            if not data:
                line.close()
                break
            size += len(data)
            if not line.write(data) and self._waiting is not None:
                self._waiting.writing = True
        if size:
            self._gone = _now()
        return size

    def _written(self) -> None:
        self._gone = _now()
        if self._waiting is not None:
            self._waiting.goes_on(self._gone)
            self._waiting.writing = False

    def _received(self, data: bytes) -> None:
        now = _now()
        self._first = self._first or now
        self._size += len(data)
        if self._waiting is not None:
            self._waiting.goes_on(now)
        wire = self._wire
        wire.receive_data(data)
        events = wire.events_received()
        left = sum(isinstance(event, Frame) and event.opcode in _DATA for event in events)
        for event in events:
            if isinstance(event, Frame):
                if event.opcode in _DATA:
                    left -= 1
                    self._frame(event, now, last=left == 0)
                elif not self._pieces:
                    # a ping is not part of the next message
                    self._first = 0.0
            elif isinstance(event, Response) and wire.handshake_exc is None:
                self._arrived(_ReceivedMessage(b"", False, self._first, now, self._size))
        if wire.handshake_exc is not None:
            self._over(_not_opened(self._parts, wire.handshake_exc))
        elif wire.state in (CLOSING, CLOSED) and self._ended is None:
            self._flush()
            self._over(_closed(self._parts, wire))
        else:
            # a pong, for example: it does not change when the call was sent
            gone = self._gone
            self._flush()
            self._gone = gone

    def _frame(self, frame: Frame, now: float, *, last: bool) -> None:
        """`last`: the last frame of this read. Bytes of earlier ones are not part of its message."""
        self._first = self._first or now
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        self._pieces.append(bytes(frame.data))
        if frame.fin:
            content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces = []
            size = self._size if last else min(self._size, _frame_size(content))
            self._arrived(_ReceivedMessage(content, self._text, self._first or now, now, size))

    def _arrived(self, message: _ReceivedMessage) -> None:
        self._first, self._size = 0.0, self._size - message.size
        waiting = self._waiting
        if waiting is None or waiting.future.done():
            self._hold(message)
            return
        try:
            if self._match is None or self._match(message.data):
                waiting.settle(message)
            else:
                self._hold(message)
        except Exception as error:  # noqa: BLE001 - an error of the test's `match` is raised in its step
            waiting.fail(error)

    def _hold(self, message: _ReceivedMessage) -> None:
        """Keep a message for `receive`."""
        if len(self._held) >= MOST_HELD:
            self._held.popleft()
            self._network.unexpected += 1
        self._held.append(message)

    def _discard(self) -> None:
        """Drop messages that arrived when no call waited for them."""
        self._network.unexpected += len(self._held)
        self._held.clear()

    def _lost(self, error: CallFailed) -> None:
        if self._wire.state is CONNECTING:
            self._wire.receive_eof()
            if self._wire.handshake_exc is not None:
                error = _not_opened(self._parts, self._wire.handshake_exc)
        self._over(error)

    def _over(self, error: CallFailed) -> None:
        self._ended = self._ended or error
        self._watch.stop()
        if self._transport is not None:
            self._transport.close()
        if self._waiting is not None:
            self._waiting.fail(self._ended)


class WebsocketClient(MessageClient[WebsocketConnection]):
    """`self.client.websocket`: the connections of one virtual user.

    async with self.client.websocket.connect("ws://127.0.0.1:8080/ws") as connection:
        await connection.send("hello")
        r = await connection.receive()

    r = await self.client.websocket.send("ws://127.0.0.1:8080/ws", {"ask": "time"})
    r.data, r.elapsed
    """

    def send(
        self,
        url: URL | str,
        data: Any,
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: Timeout | None = None,
        match: Match | None = None,
    ) -> Calling:
        """Send a message on a connection that stays open, and wait for its response. Headers are for the handshake.

        The response is the next message, or the next one for which `match` is true. For messages that the server sends
        by itself, open a connection with `connect`, and use `receive`.
        """
        parts = self._parts(url)
        handshake = _PLAIN if headers is None else _Handshake(headers_of(headers), (), False)
        return self._lent(parts, data, handshake, self._limits(timeout), match)

    def connect(
        self,
        url: URL | str,
        *,
        headers: Headers | Mapping[str, str] | None = None,
        subprotocols: Sequence[str] = (),
        compress: bool = False,
        timeout: Timeout | None = None,
    ) -> contextlib.AbstractAsyncContextManager[WebsocketConnection]:
        """A separate connection; closed at the end of the block. `compress` offers permessage-deflate."""
        handshake = _Handshake(headers_of(headers), tuple(subprotocols), compress)
        connection = WebsocketConnection(self._network, self._parts(url), handshake)
        return self._connected(connection, self._limits(timeout))

    async def _lent(
        self, parts: URLParts, data: Any, handshake: _Handshake, limits: Timeouts, match: Match | None
    ) -> WebsocketResponse:
        started = _now()
        key = parts.full if handshake.headers is None else f"{parts.full} {handshake.headers.block!r}"
        connection = self._connections.take(key, lambda: WebsocketConnection(self._network, parts, handshake))
        try:
            return await connection._call(  # noqa: SLF001 - one part
                data, answered=True, limits=limits, started=started, match=match
            )
        finally:
            self._connections.give_back(key, connection)

    @contextlib.asynccontextmanager
    async def _connected(self, connection: WebsocketConnection, limits: Timeouts) -> AsyncIterator[WebsocketConnection]:
        await connection.open(_now(), limits)
        self._connections.add(connection)
        try:
            yield connection
            await connection.close()
        finally:
            self._connections.drop(connection)
            connection.give_up()

    def _parts(self, url: URL | str) -> URLParts:
        whole = joined(url.whole if isinstance(url, URL) else url, self.base_url)
        # a path with the base URL of a test that is otherwise HTTP
        if whole.startswith("http"):
            whole = f"ws{whole.removeprefix('http')}"
        return parts_of(whole, "", ("ws", "wss"), "WebSocket")


def _frame_size(content: bytes) -> int:
    """Bytes of a message in one frame of a server, without compression."""
    return len(content) + (2 if len(content) < 126 else 4 if len(content) < 65_536 else 10)


def _never(_: str | bytes) -> bool:
    """The closing handshake waits for no message."""
    return False


def _protocol(parts: URLParts, handshake: _Handshake) -> ClientProtocol:
    return ClientProtocol(
        parse_uri(parts.full),
        extensions=[ClientPerMessageDeflateFactory()] if handshake.compress else None,
        subprotocols=[Subprotocol(name) for name in handshake.subprotocols] or None,
        max_size=None,
    )


def _not_opened(parts: URLParts, error: Exception) -> CallFailed:
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        return CallFailed(f"http {status}", f"{parts.shown} answered {status} instead of opening a WebSocket")
    return CallFailed("protocol", f"{parts.shown} did not open a WebSocket ({error})")


def _closed(parts: URLParts, wire: ClientProtocol) -> CallFailed:
    if wire.parser_exc is not None:
        return CallFailed("protocol", f"{parts.shown} sent an invalid WebSocket frame ({wire.parser_exc})")
    frame = wire.close_rcvd
    if frame is None:
        return CallFailed("closed", f"{parts.shown} closed the WebSocket without a close frame")
    why = f"with code {frame.code}{f': {frame.reason}' if frame.reason else ''}"
    return CallFailed(f"closed {frame.code}", f"{parts.shown} closed the WebSocket {why}")
