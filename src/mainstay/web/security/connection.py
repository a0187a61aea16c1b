"""A connection of uvicorn with limits that uvicorn lacks.

Uvicorn keeps a connection for as long as its client sends a byte now and then, however long its headers become, and
waits forever for a client that reads nothing. Here the headers of a request have a limit of time and size, the client
must read what was sent, and a request that cannot be parsed gets a response like any other mistake. So does a client
that connects when there are too many connections: see `client_limits`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..problems import Problem, problem_response
from .client_limits import ConnectionCounts, ConnectionSlot
from .headers import secured
from .limits import ConnectionLimits
from .rate_limit import address_of

#: the time that a connection beyond the limit has for its request
_SPARE_S = 2.0
#: the path that is answered beyond the limit as well
_ALWAYS = b"/livez"


class LimitedConnection(HttpToolsProtocol):
    """Uvicorn makes one for each client."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    counts: ClassVar[ConnectionCounts]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        """ends the wait for the headers; None while a request is being answered"""
        self._write_timer: asyncio.TimerHandle | None = None
        self._in_head = False
        """a request has begun, and its headers are incomplete"""
        self._head = 0
        """bytes of the headers so far"""
        self._ended = False
        """a request ended in the last received data"""
        self._problem: Problem | None = None
        self._slot: ConnectionSlot | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        slot = self._slot = self.counts.enter(address_of({"client": self.client}))
        if slot.problem is not None and not slot.heard:
            self._refuse(slot.problem)
            return
        self._expect_head(self.limits.head_s if slot.problem is None else min(_SPARE_S, self.limits.head_s))

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        if self._slot is not None:
            self.counts.leave(self._slot)
            self._slot = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head(self.limits.head_s)
        self._ended = False
        super().data_received(data)
        if not self._in_head:
            return
        if not self._ended:  # otherwise the size of the next request is unknown
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
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        over_limit = None if self._slot is None else self._slot.problem
        if len(self.url) > self.limits.url:
            self._problem = Problem(414, "url_too_long", f"the URL is longer than {self.limits.url:,} bytes")
        elif sum(len(name) + len(value) + 4 for name, value in self.headers) > self.limits.head:
            self._problem = self._head_too_large()
        elif over_limit is not None and self.url.partition(b"?")[0] != _ALWAYS:
            self._problem = over_limit
        if self._problem is not None:
            # ends the parsing; uvicorn then calls `send_400_response`
            raise self._problem
        super().on_headers_complete()
        if over_limit is not None and self.cycle is not None:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            # abort: close would wait until the client has read everything
            self._write_timer = self.loop.call_later(self.limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the text of uvicorn
        self._refuse(self._problem or Problem(400, "bad_request", "this is not a request of HTTP/1.1"))

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: uvicorn's advice to install a WebSocket library does not apply here."""

    def _expect_head(self, within_s: float) -> None:
        self._head_timer = self.loop.call_later(within_s, self._too_slow)

    def _too_slow(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if not self._in_head:
            # no request has begun, or a discarded body is still being sent: there is nothing to answer
            self.transport.close()
            return
        detail = f"the headers of the request did not arrive within {self.limits.head_s:g} s"
        self._refuse(Problem(408, "too_slow", detail))

    def _head_too_large(self) -> Problem:
        detail = f"the headers of the request are larger than {self.limits.head:,} bytes"
        return Problem(431, "headers_too_large", detail)

    def _refuse(self, problem: Problem) -> None:
        """Respond without the app, and close. In the middle of another response, only close."""
        cycle = self.cycle
        if not self.pipeline and (cycle is None or cycle.response_complete or not cycle.response_started):
            response = problem_response(problem)
            headers = [*self.server_state.default_headers, *secured(response.raw_headers, tls=self.scheme == "https")]
            lines = [name + b": " + value for name, value in [*headers, (b"connection", b"close")]]
            phrase = HTTPStatus(problem.status).phrase
            head = b"\r\n".join([f"HTTP/1.1 {problem.status} {phrase}".encode(), *lines])
            self.transport.write(head + b"\r\n\r\n" + bytes(response.body))
        self.transport.close()


def connection_class(limits: ConnectionLimits, counts: ConnectionCounts) -> type[LimitedConnection]:
    """The class of connections with these limits, counted in `counts`."""
    return type("LimitedConnection", (LimitedConnection,), {"limits": limits, "counts": counts})


__all__ = ["LimitedConnection", "connection_class"]
