"""One connection of uvicorn, with the limits that uvicorn has not.

Uvicorn keeps a connection for as long as its client sends a byte now and then, however long its headers become, and
waits for ever for a client that reads nothing. Here a request has to be told within a time and a size, what was sent
has to be read, and what cannot be parsed is answered like every other mistake. So is whoever comes when there are too
many: see `crowd`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..problems import Problem, answer
from .client_limits import ConnectionCounts, ConnectionSlot
from .headers import secured
from .limits import ConnectionLimits
from .rate_limit import address_of

#: for its request, whoever comes when there are too many has so long
_SPARE_S = 2.0
#: what is answered to them, too
_ALWAYS = b"/livez"


class LimitedConnection(HttpToolsProtocol):
    """As uvicorn makes one for each client."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    crowd: ClassVar[ConnectionCounts]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waits: asyncio.TimerHandle | None = None
        """until the headers have to be there; None while a request is being answered"""
        self._unread: asyncio.TimerHandle | None = None
        self._in_head = False
        """whether a request has begun whose headers are not all there"""
        self._head = 0
        """bytes of those so far"""
        self._ended = False
        """whether a request ended in what was received last"""
        self._problem: Problem | None = None
        self._seat: ConnectionSlot | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        seat = self._seat = self.crowd.enter(address_of({"client": self.client}))
        if seat.problem is not None and not seat.heard:
            self._refuse(seat.problem)
            return
        self._expect_head(self.limits.head_s if seat.problem is None else min(_SPARE_S, self.limits.head_s))

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._waits, self._unread):
            if timer is not None:
                timer.cancel()
        if self._seat is not None:
            self.crowd.leave(self._seat)
            self._seat = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._waits is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head(self.limits.head_s)
        self._ended = False
        super().data_received(data)
        if not self._in_head:
            return
        if not self._ended:  # else nobody knows how much of it belongs to the next one
            self._head += len(data)
        if self._head > self.limits.head and not self.transport.is_closing():
            self._refuse(self._head_too_large())

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head = 0
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._ended = True
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None
        without_seat = None if self._seat is None else self._seat.problem
        if len(self.url) > self.limits.url:
            self._problem = Problem(414, "url_too_long", f"the URL is longer than {self.limits.url:,} bytes")
        elif sum(len(name) + len(value) + 4 for name, value in self.headers) > self.limits.head:
            self._problem = self._head_too_large()
        elif without_seat is not None and self.url.partition(b"?")[0] != _ALWAYS:
            self._problem = without_seat
        if self._problem is not None:
            # ends the parsing; uvicorn then asks for the answer below
            raise self._problem
        super().on_headers_complete()
        if without_seat is not None and self.cycle is not None:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            # not closed but aborted: to close would wait until all is read
            self._unread = self.loop.call_later(self.limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words
        self._refuse(self._problem or Problem(400, "bad_request", "this is not a request of HTTP/1.1"))

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: uvicorn's advice, to install what speaks WebSocket, would not help here."""

    def _expect_head(self, within_s: float) -> None:
        self._waits = self.loop.call_later(within_s, self._too_slow)

    def _too_slow(self) -> None:
        self._waits = None
        if self.transport.is_closing():
            return
        if not self._in_head:
            # it has asked nothing, or goes on with what is thrown away: there is nothing to answer
            self.transport.close()
            return
        detail = f"the headers of the request did not arrive within {self.limits.head_s:g} s"
        self._refuse(Problem(408, "too_slow", detail))

    def _head_too_large(self) -> Problem:
        detail = f"the headers of the request are larger than {self.limits.head:,} bytes"
        return Problem(431, "headers_too_large", detail)

    def _refuse(self, problem: Problem) -> None:
        """Answer without asking the app, and close. In the middle of another answer, only close."""
        cycle = self.cycle
        if not self.pipeline and (cycle is None or cycle.response_complete or not cycle.response_started):
            told = answer(problem)
            headers = [*self.server_state.default_headers, *secured(told.raw_headers, tls=self.scheme == "https")]
            lines = [name + b": " + value for name, value in [*headers, (b"connection", b"close")]]
            phrase = HTTPStatus(problem.status).phrase
            head = b"\r\n".join([f"HTTP/1.1 {problem.status} {phrase}".encode(), *lines])
            self.transport.write(head + b"\r\n\r\n" + bytes(told.body))
        self.transport.close()


def connection_class(limits: ConnectionLimits, crowd: ConnectionCounts) -> type[LimitedConnection]:
    """Connections with these limits, among these."""
    return type("LimitedConnection", (LimitedConnection,), {"limits": limits, "crowd": crowd})


__all__ = ["LimitedConnection", "connection_class"]
