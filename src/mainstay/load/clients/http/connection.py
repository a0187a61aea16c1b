"""One HTTP/1.1 connection, and the call that is under way on it.

It owns its socket, and reads and writes when it is its turn (see `turns`). The usual case is short: the request leaves
in one write, the response arrives in one read and its head is known. `start` and `take` do that, and pass on everything
else.
A connection has at most one call; it goes back to its pool when the response is complete, before its caller wakes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterable
from typing import Any, Protocol

from ....errors import CallFailed
from ...results import Opening
from ..call_limits import DeadlineTimer, Phase, next_due, passed
from .calls import HTTPCall, Upload
from .heads import Head, heads
from .pool import Pool
from .response import HTTPResponse
from .response_reader import ResponseReader
from .shared import SharedHTTPState
from .stream import Stream
from .turns import LATER

_now = time.perf_counter


class Owner(Protocol):
    """The session, which handles everything that a connection does not."""

    def settle(self, call: HTTPCall, response: HTTPResponse, waiter: asyncio.Future[HTTPResponse]) -> None:
        """A response sets cookies or redirects."""
        ...

    def again(self, call: HTTPCall, started: float, waiter: asyncio.Future[HTTPResponse], *, sent: int) -> None:
        """The server closed the connection before it got the call. `sent`: wasted bytes."""
        ...


class _ConnectionLost(Exception):
    """The connection broke; a separate type, because the code that makes a body may raise OSError, too."""

    def __init__(self, error: OSError) -> None:
        self.error = error


class HTTP1Connection:
    """A connection of one user to one origin."""

    __slots__ = (
        "_alarm", "_begins", "_drained", "_head", "_loop", "_network", "_owner", "_paused", "_rest", "_shared",
        "_started", "_turns", "_uploading", "_waiter", "call", "closed", "fd", "last", "opening", "pool", "reading",
        "recv", "send", "sock", "used", "written",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, *, pool: Pool, owner: Owner, shared: SharedHTTPState) -> None:
        self.sock = sock
        self.pool = pool
        self.call: HTTPCall | None = None
        self.closed = False
        self.opening: Opening | None = None
        """for the call that opened it"""
        self.fd = sock.fileno()
        self.recv = sock.recv
        self.send = sock.send
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._shared = shared
        self._network = shared.network
        self._waiter: asyncio.Future[HTTPResponse] | None = None
        self.reading: ResponseReader | None = None
        self._rest: memoryview | None = None
        """the unwritten rest of the request"""
        self._uploading: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._started = self.written = self.last = 0.0
        self._alarm = DeadlineTimer()
        """for the limits of the call"""
        self._begins = b"-"
        """the head of the last plain response, as bytes and parsed"""
        self._head: Head | None = None
        self.used = False
        """it has received a response before"""
        self._paused = False
        self._turns = shared.turns
        try:
            self._turns.watch(self)
        except BaseException:
            sock.close()
            raise
        pool.connections.add(self)
        shared.watch(self)

    def start(self, call: HTTPCall, started: float) -> asyncio.Future[HTTPResponse]:
        """Send a call; the future gets its response."""
        self.call = call
        self._started = self.written = self.last = started
        due = started + call.shortest
        if due < self._alarm.due:
            self._alarm.set(due, self._look)
        waiter = self._waiter = self._loop.create_future()
        self._turns.send(self)
        return waiter

    def take(self, data: bytes, at: float) -> None:
        """Take received bytes. `at`: when they arrived."""
        call = self.call
        if call is None or not data:
            self._network.unexpected += bool(data)
            self.lost(None)
            return
        if at >= self._alarm.due and self._late(at):
            return
        if self.reading is None and not call.stream:
            # most responses begin like the last one; comparing is cheaper than looking the head up
            if data.startswith(self._begins):
                head, end = self._head, len(self._begins)
            else:
                end = data.find(b"\r\n\r\n") + 4
                begins = data[:end]
                head = heads.get(begins)
                if head is not None:
                    self._begins, self._head = begins, head
            # a response to HEAD, or without a body of this length, is excluded by its size
            if head is not None and len(data) == end + head.plain:
                waiter = self._waiter
                assert waiter is not None
                if waiter.done() or self._rest is not None or self._uploading is not None:
                    self._read_on(data, at)
                    return
                opening = self.opening
                self.call = self._waiter = self.opening = None
                self.used = True
                self._network.answered += 1
                pool = self.pool
                if pool.waiters:
                    pool.release(self)
                else:
                    pool.idle.append(self)
                waiter.set_result(
                    HTTPResponse(call, head, data[end:], self._started, self.written, at, at, len(data), opening)
                )
                return
        self._read_on(data, at)

    # responses that are not plain

    def _read_on(self, data: bytes, at: float) -> None:
        call, waiter, reading = self.call, self._waiter, self.reading
        assert call is not None
        assert waiter is not None
        if waiter.cancelled():
            self.give_up()
            return
        if reading is None:
            reading = self.reading = ResponseReader(call.method, at)
        self.last = at
        try:
            done = reading.feed(data)
        except CallFailed as error:
            self._fail(error)
            return
        if call.stream and reading.stream is None and reading.head is not None and reading.head.location is None:
            self._start_stream(call, waiter, reading)
        if done:
            self._finish(reading, at)
        elif reading.stream is not None:
            reading.stream.arrived()

    def _answer(self, call: HTTPCall, reading: ResponseReader, body: bytes, ended: float) -> HTTPResponse:
        assert reading.head is not None
        return HTTPResponse(
            *(call, reading.head, body, self._started, self.written, reading.first, ended),
            *(reading.received, self.opening),
        )

    def _start_stream(self, call: HTTPCall, waiter: asyncio.Future[HTTPResponse], reading: ResponseReader) -> None:
        """Return the response with its head; its body is read as a stream."""
        assert reading.body is not None
        response = self._answer(call, reading, b"", _now())
        reading.stream = response.stream = Stream(self, reading.body, response)
        self._settle(call, response, waiter)

    def _settle(self, call: HTTPCall, response: HTTPResponse, waiter: asyncio.Future[HTTPResponse]) -> None:
        try:
            self._owner.settle(call, response, waiter)
        except Exception as error:  # noqa: BLE001 - for the waiting caller, not for other connections of this round
            if not waiter.done():
                waiter.set_exception(error)

    def _finish(self, reading: ResponseReader, at: float) -> None:
        call, waiter, head = self.call, self._waiter, reading.head
        assert call is not None
        assert waiter is not None
        assert head is not None
        response = self._answer(call, reading, b"" if reading.stream else reading.content, at)
        self._network.answered += 1
        self.used = True
        self.call = self._waiter = self.reading = self.opening = None
        if reading.keeps and self._rest is None and self._uploading is None:
            self.resume()
            self.pool.release(self)
        else:
            self.close()
        if reading.stream is not None:
            reading.stream.finish(at, reading.received)
        elif waiter.done():
            return
        elif head.encoding and head.location is None and (broken := response.broken_body()) is not None:
            broken.sent, broken.received = response.sent, response.received
            waiter.set_exception(broken)
        elif head.cookies or head.location is not None:
            self._settle(call, response, waiter)
        else:
            waiter.set_result(response)

    def lost(self, error: OSError | None) -> None:
        """The server closed the connection, or it broke."""
        call, waiter, reading = self.call, self._waiter, self.reading
        if call is None:
            self.close()
            return
        assert waiter is not None
        if self._late(_now()):
            return
        if reading is not None and error is None and reading.at_close():
            self._finish(reading, _now())
            return
        if reading is None and self.used and (call.repeatable or self.unsent) and not waiter.done():
            sent = 0 if self.unsent else call.size
            self._network.resent += sent > 0
            self.call = self._waiter = None
            self.close()
            self._owner.again(call, self._started, waiter, sent=sent)
            return
        when = f"after {reading.received} bytes of its response" if reading else "before its response"
        why = f" ({error.strerror or error})" if error is not None else ""
        self._fail(CallFailed("closed", f"{call.parts.shown} closed the connection {when}{why}"))

    def _fail(self, error: CallFailed) -> None:
        waiter, reading = self._waiter, self.reading
        given_up = waiter is not None and waiter.cancelled()
        error.sent, error.received = self._bytes()
        unsent = self.unsent
        self.call = self._waiter = self.reading = self.opening = None
        self.close()
        if reading is not None and reading.stream is not None:
            reading.stream.fail(error, _now())
        elif given_up:
            if not unsent:
                self._network.abort(error.sent, error.received)
        elif waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def _bytes(self) -> tuple[int, int]:
        """Sent bytes of the current call, and received bytes of its response."""
        call, reading = self.call, self.reading
        sent = 0
        if call is not None and not self.unsent:
            sent = call.size - (len(self._rest) if self._rest is not None and call.upload is None else 0)
        return sent, reading.received if reading is not None else 0

    def leave(self) -> None:
        """The reader of the stream stops. That is a normal end: an endless stream has no other."""
        reading = self.reading
        if self.call is None or reading is None or reading.stream is None or self._late(_now()):
            return
        self._network.answered += 1
        self.used = True
        self.call = self._waiter = self.reading = self.opening = None
        self.close()
        reading.stream.finish(_now(), reading.received)

    def give_up(self) -> None:
        """Abort the call: its caller does not want it any more."""
        if self.call is not None and not self.unsent:
            self._network.abort(*self._bytes())
        waiter, reading = self._waiter, self.reading
        self.call = self._waiter = self.reading = self.opening = None
        self.close()
        closed = CallFailed("closed", "the session was closed while the call was under way")
        if reading is not None and reading.stream is not None:
            reading.stream.fail(closed, _now())
        elif waiter is not None and not waiter.done():
            waiter.set_exception(closed)

    def drop_unwanted(self) -> None:
        """Abort a call whose caller was cancelled."""
        if self._waiter is not None and self._waiter.cancelled():
            self.give_up()

    # limits

    def _look(self) -> None:
        """Check whether a limit has passed."""
        now = _now()
        call = self.call
        if call is None:
            self._alarm.stop()
        elif not self._late(now):
            self._alarm.set(next_due(call.limits, now, self._started, self.last, self._phase), self._look)

    def _late(self, now: float) -> bool:
        """Whether a limit has passed, which ends the call."""
        call = self.call
        if call is None or now < self._alarm.due:
            return False
        if self._paused or self.unsent:
            self.last = now  # the reader or this client is slow, not the server
        too_late = passed(call.limits, now, self._started, self.last, self._phase, call.what)
        if too_late is None:
            return False
        self._fail(too_late)
        return True

    @property
    def _phase(self) -> Phase | None:
        if self._rest is not None:
            return "write"
        return "read" if self._uploading is None else None

    # writing the rest of a request

    def send_on(self, call: HTTPCall, count: int) -> None:
        """`count` bytes are sent; write the rest when the socket is ready."""
        if count != call.size:
            self._rest = memoryview(call.request)[count:]
            self._loop.add_writer(self.fd, self._on_write)
        if call.upload is not None:
            self._uploading = self._loop.create_task(self._send_up(call.upload))

    def _on_write(self) -> None:
        assert self._rest is not None
        try:
            count = self.send(self._rest)
        except LATER:
            return
        except OSError as error:
            self.lost(error)
            return
        now = _now()
        if self._late(now):
            return
        self.written = self.last = now
        self._rest = self._rest[count:]
        if len(self._rest):
            return
        self._rest = None
        self._loop.remove_writer(self.fd)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def _send_up(self, upload: Upload) -> None:
        """Send a body in chunks while it is made."""
        call = self.call
        try:
            if isinstance(upload, AsyncIterable):
                async for piece in upload:
                    await self._push(b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b"")
            else:
                for piece in upload:
                    await self._push(b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b"")
            await self._push(b"0\r\n\r\n")
            self._uploading = None
        except _ConnectionLost as gone:
            self._uploading = None
            self.lost(gone.error)
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            self._uploading = None
            waiter = self._waiter
            if self.call is call and waiter is not None and not waiter.done():
                # an error of the test's own code is raised in its step
                self.call = self._waiter = self.reading = None
                self.close()
                self._network.aborted += 1
                waiter.set_exception(error)

    async def _push(self, data: bytes) -> None:
        await self._drain()
        try:
            count = self.send(data) if data else 0
        except LATER:
            count = 0
        except OSError as error:
            raise _ConnectionLost(error) from None
        self.written = self.last = _now()
        if count < len(data):
            self._rest = memoryview(data)[count:]
            self._loop.add_writer(self.fd, self._on_write)
            await self._drain()

    async def _drain(self) -> None:
        if self._rest is not None:
            self._drained = self._loop.create_future()
            await self._drained

    def pause(self) -> None:
        """Stop reading: the reader of a stream is slower than the server."""
        if not self._paused and not self.closed:
            self._paused = True
            self._turns.leave(self)

    def resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self.last = _now()
            self._turns.watch(self)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._alarm.stop()
        self._turns.leave(self)
        self._loop.remove_writer(self.fd)
        if self._uploading is not None:
            self._uploading.cancel()
        if self.used and not self.pool.left:
            # not before a response: the server sends its session ticket with the first one
            self.pool.tls = self.tls_session or self.pool.tls
        self.sock.close()
        self._shared.connections.discard(self)
        self.pool.drop(self)

    @property
    def unsent(self) -> bool:
        """Nothing of its call is written yet."""
        return self.written == self._started

    @property
    def tls_session(self) -> ssl.SSLSession | None:
        session: Any = getattr(self.sock, "session", None)
        return session if isinstance(session, ssl.SSLSession) else None
