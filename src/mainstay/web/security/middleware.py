"""Limits of size, time and rate, security headers, and the access log: for every request, before authentication."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...clock import Clock
from ..caller import Caller
from ..options import WebOptions
from ..problems import Problem, problem_response
from .guard import BURST_S
from .headers import secured
from .limits import ConnectionLimits
from .origin import check_host, host_and_port
from .rate_limit import RateBuckets, address_of
from .streams import OpenStream, OpenStreams

_LONGEST_PATH = 256
_LEFT: Message = {"type": "http.disconnect"}

log = logging.getLogger("mainstay.web.access")


class GuardedApp:
    """An app with limits, security headers and an access log."""

    def __init__(
        self,
        app: ASGIApp,
        options: WebOptions,
        limits: ConnectionLimits,
        knows: Callable[[Request], bool],
        clock: Clock | None,
    ) -> None:
        self.app = app
        self.options = options
        self.limits = limits
        self.knows = knows
        self.streams = OpenStreams(options.streams)
        self.unknown_rates = RateBuckets(options.rate, burst=options.rate * BURST_S, clock=clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()

    def end_streams(self) -> None:
        """End the live streams when the server stops; other responses continue."""
        self.streams.end_all()


def wrapped(
    app: ASGIApp,
    options: WebOptions,
    limits: ConnectionLimits | None = None,
    *,
    knows: Callable[[Request], bool] = lambda _: False,
    clock: Clock | None = None,
) -> GuardedApp:
    """The app as it is served. Unknown callers share the rate limit of their address: see `Guard.knows`."""
    return GuardedApp(app, options, limits or ConnectionLimits(), knows, clock)


class _Exchange:
    """One request and its response."""

    def __init__(self, app: GuardedApp, scope: Scope, receive: Receive, send: Send) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = Headers(scope=scope)
        self._read = 0
        self._read_all = False
        self._read_by_s = 0.0
        self._status = 0
        self._sent = 0
        self._sent_all = False
        self._stream = OpenStream()
        self._is_stream = False
        self._refused = False

    async def run(self) -> None:
        began_s = time.perf_counter()
        self._scope.setdefault("state", {})
        try:
            await self._answer()
        finally:
            self._app.streams.left(self._stream)
            if log.isEnabledFor(logging.INFO):
                self._log(time.perf_counter() - began_s)

    async def _answer(self) -> None:
        try:
            self._check()
            await self._app.app(self._scope, self._next, self._respond)
        except Problem as problem:
            if self._status:
                raise
            await problem_response(problem)(self._scope, self._receive, self._respond)
        if self._is_stream and not self._sent_all:
            # the server ended the stream: a complete response makes the client come back
            await self._respond({"type": "http.response.body", "body": b"", "more_body": False})

    def _check(self) -> None:
        app, headers = self._app, self._headers
        hosts = headers.getlist("host")
        if len(hosts) > 1 or (hosts and host_and_port(hosts[0], "http") is None):
            raise Problem(400, "bad_host", "the Host header is not a valid host", field="Host")
        if app.options.tokens is None:
            check_host(headers)
        if not app.knows(Request(self._scope)):
            app.unknown_rates.check(address_of(self._scope))
        length = headers.get("content-length", "")
        # first by its length: Python refuses to convert a number of thousands of digits
        if length.isdecimal() and (len(length) > 18 or int(length) > app.options.body_limit):
            raise self._too_large()

    async def _next(self) -> Message:
        if self._read_all:
            return await self._stream.or_ended(self._receive, _LEFT)
        self._read_by_s = self._read_by_s or asyncio.get_running_loop().time() + self._app.limits.body_s
        try:
            async with asyncio.timeout_at(self._read_by_s):
                message = await self._receive()
        except TimeoutError:
            limit_s = self._app.limits.body_s
            detail = f"the body of the request did not arrive within {limit_s:g} s"
            raise Problem(408, "too_slow", detail, headers={"Connection": "close"}) from None
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._app.options.body_limit:
                raise self._too_large()
            self._read_all = not message.get("more_body", False)
        return message

    async def _respond(self, message: Message) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            await self._begin(message)
            return
        if message["type"] == "http.response.body":
            self._sent += len(message.get("body", b""))
            self._sent_all = not message.get("more_body", False)
        await self._send(message)

    async def _begin(self, message: Message) -> None:
        given: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
        if any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in given):
            try:
                caller = self._scope["state"].get("caller")
                # without authentication, all callers count as one
                named = isinstance(caller, Caller) and caller.how != "local"
                self._app.streams.begin(self._stream, caller.name if named else "")
            except Problem as problem:
                await problem_response(problem)(self._scope, self._receive, self._respond)
                # ignore what the handler still sends, and let it see a disconnected client
                self._refused = True
                self._stream.end()
                return
            self._is_stream = True
        self._status = message["status"]
        tls = self._scope.get("scheme") == "https"
        await self._send({**message, "headers": secured(given, tls=tls)})

    def _too_large(self) -> Problem:
        limit = self._app.options.body_limit
        return Problem(413, "body_too_large", f"the body of the request is larger than {limit:,} bytes", limit=limit)

    def _log(self, took_s: float) -> None:
        """Never logs the query, a header or a body: they may contain secrets and payloads."""
        scope = self._scope
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        caller: Any = scope["state"].get("caller")
        log.info(
            "%s %s",
            scope["method"],
            raw[:_LONGEST_PATH].decode("ascii", "backslashreplace"),
            extra={
                "status": self._status,
                "ms": round(took_s * 1000, 1),
                "read": self._read,
                "sent": self._sent,
                "caller": caller.name if isinstance(caller, Caller) else "-",
                "client": address_of(scope),
            },
        )


__all__ = ["GuardedApp", "wrapped"]
