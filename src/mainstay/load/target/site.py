"""The routes of the target, with its delays, errors and stalls, independent of the protocol."""

from __future__ import annotations

import asyncio
import gzip
import random
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ...clock import seconds
from ...errors import InvalidInput
from .counts import PathTally, TargetCounter
from .latency import DelayDistribution
from .message import JSON, HeaderList, Request, TargetResponse, filler
from .options import TargetOptions
from .timers import Timers
from .units import share_of, size_of

Route = Callable[["Site", Request, Any], TargetResponse]
MOST_TOKENS = 100_000
MOST_PIECES = 100_000


class Site:
    """The state of a target, shared by all its connections."""

    def __init__(self, options: TargetOptions, loop: asyncio.AbstractEventLoop) -> None:
        self.options = options
        self.latency = DelayDistribution(options.latency)
        self.errors = share_of(options.errors, field="errors")
        self.size = size_of(options.size, field="size")
        if not 100 <= options.error_status <= 599:
            raise InvalidInput("error_status", f"{options.error_status} is not an HTTP status")
        self.counter = TargetCounter(options.keep)
        self.timers = Timers(loop)
        self.known: dict[bytes, Request] = {}
        """requests by their bytes: load repeats the same ones"""
        self.stalled_until = 0.0
        self.tokens: dict[str, str] = {}
        self._rng = random.Random(options.seed)
        self._plain = TargetResponse(200, filler(self.size))
        self._error = TargetResponse(options.error_status, b"a requested error\n")
        self._steady = self.latency.is_none and not self.errors

    def begin(self, request: Request) -> PathTally:
        """Count a complete request."""
        tally = self.counter.tally(request.path)
        tally.begun += 1
        return tally

    def answer(self, request: Request, transport: Any) -> tuple[TargetResponse, float]:
        """The response, and its delay in seconds. The transport has the address of the client."""
        route = _ROUTES.get(request.path) or _prefixed(request.path)
        if route is None:
            return _problem(404, f"the target has no {request.path}; it has {', '.join(sorted(_ROUTES))}"), 0.0
        try:
            response = route(self, request, transport)
            delay = self._delay(request)
        except InvalidInput as error:
            return _problem(400, str(error)), 0.0
        return response, delay

    def always_same(self, request: Request) -> bool:
        """Whether equal requests always get the same response, without a delay."""
        return self._steady and request.path == "/" and "delay" not in request.query

    def due(self, now: float, delay: float) -> float:
        return max(now + delay, self.stalled_until)

    def delay(self) -> float:
        """A delay of the options, for a message without a query."""
        return 0.0 if self.latency.is_none else self.latency.draw(self._rng)

    def stall(self, duration_s: float) -> None:
        """Send no responses for this time."""
        self.stalled_until = max(self.stalled_until, time.perf_counter() + duration_s)
        self.timers.at(self.stalled_until, self._resume)

    def reset(self) -> None:
        self.counter.reset(self.options.keep)
        self.known.clear()

    def root(self, request: Request) -> TargetResponse:
        query = request.query
        status = _number(query["status"], "status", 100, 599) if "status" in query else 0
        if not status and self.errors and self._rng.random() < self.errors:
            return self._error
        if "size" not in query and status in (0, 200):
            return self._plain
        size = size_of(query["size"], field="size") if "size" in query else self.size
        return TargetResponse(status or 200, b"" if status in (204, 304) else filler(size))

    def _delay(self, request: Request) -> float:
        if request.control:
            return 0.0
        if "delay" in request.query:
            return DelayDistribution(request.query["delay"], field="delay").draw(self._rng)
        return self.delay()

    def _resume(self) -> None:
        if time.perf_counter() >= self.stalled_until:
            self.stalled_until = 0.0


def _root(site: Site, request: Request, _transport: Any) -> TargetResponse:
    return site.root(request)


def _echo(_site: Site, request: Request, transport: Any) -> TargetResponse:
    return _json(
        {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "version": request.version,
            "headers": request.headers,
            "body": request.body.decode(errors="replace"),
            "client": _peer(transport),
        }
    )


def _websocket(_site: Site, _request: Request, _transport: Any) -> TargetResponse:
    return _problem(426, "this route is for WebSocket; request an upgrade")


def _login(site: Site, request: Request, _transport: Any) -> TargetResponse:
    try:
        user = str(msgspec.json.decode(request.body, type=dict[str, Any])["user"])
    except (msgspec.DecodeError, KeyError):
        raise InvalidInput("body", 'send JSON with the user: {"user": "ann"}') from None
    if len(site.tokens) >= MOST_TOKENS:
        del site.tokens[next(iter(site.tokens))]
    token = secrets.token_hex(8)
    site.tokens[token] = user
    return _json({"user": user, "token": token}, headers=(("set-cookie", f"token={token}; Path=/; HttpOnly"),))


def _me(site: Site, request: Request, _transport: Any) -> TargetResponse:
    token = request.header("authorization").removeprefix("Bearer ") or _cookies_of(request).get("token", "")
    if token not in site.tokens:
        return _problem(401, "unknown token; get one from /login and send it as cookie or as Authorization: Bearer")
    return _json({"user": site.tokens[token], "token": token})


def _cookies(_site: Site, request: Request, _transport: Any) -> TargetResponse:
    """Shows the received cookies, and sets those of the query."""
    given = {key: value for key, value in request.query.items() if key != "delay"}
    headers = tuple(("set-cookie", f"{name}={value}; Path=/") for name, value in given.items())
    return _json({"cookies": _cookies_of(request)}, headers=headers)


def _redirect(_site: Site, request: Request, _transport: Any) -> TargetResponse:
    """`/redirect/3` redirects three times, and finally to `/`."""
    left = _number(request.path.rpartition("/")[2] or "1", "redirect", 1, 100)
    status = _number(request.query.get("status", "302"), "status", 300, 399)
    query = f"?status={status}" if "status" in request.query and left > 1 else ""
    where = f"/redirect/{left - 1}{query}" if left > 1 else "/"
    return TargetResponse(status, b"", (("location", where),))


def _chunked(_site: Site, request: Request, _transport: Any) -> TargetResponse:
    n = _number(request.query.get("n", "3"), "n", 1, MOST_PIECES)
    size = size_of(request.query.get("size", "100"), field="size")
    return TargetResponse(200, pieces=(filler(max(1, size // n)),) * n)


def _gzip(_site: Site, request: Request, _transport: Any) -> TargetResponse:
    size = size_of(request.query.get("size", "1KB"), field="size")
    body = gzip.compress(msgspec.json.encode({"gzip": True, "filler": filler(size).decode()}), mtime=0)
    return TargetResponse(200, body, (*JSON, ("content-encoding", "gzip")))


def _sse(_site: Site, request: Request, _transport: Any) -> TargetResponse:
    n = _number(request.query.get("n", "5"), "n", 0, MOST_PIECES)
    gap = seconds(request.query.get("every", "0s"), field="every")
    events = tuple(f"id: {i}\nevent: tick\ndata: {i}\n\n".encode() for i in range(n))
    return TargetResponse(
        200, headers=(("content-type", "text/event-stream"),), pieces=events or (b": none\n\n",), gap=gap
    )


def _slow_body(_site: Site, request: Request, _transport: Any) -> TargetResponse:
    n = _number(request.query.get("n", "10"), "n", 1, MOST_PIECES)
    size = size_of(request.query.get("size", "1KB"), field="size")
    total = seconds(request.query.get("for", "500ms"), field="for")
    return TargetResponse(200, pieces=(filler(max(1, size // n)),) * n, gap=total / n)


def _close(_site: Site, _request: Request, _transport: Any) -> TargetResponse:
    return TargetResponse("closed")


def _reset(_site: Site, _request: Request, _transport: Any) -> TargetResponse:
    return TargetResponse("reset")


def _stall(site: Site, request: Request, _transport: Any) -> TargetResponse:
    duration = seconds(request.query.get("for", "1s"), field="for")
    site.stall(duration)
    return _json({"stalled_for": duration})


def _stats(site: Site, _request: Request, _transport: Any) -> TargetResponse:
    return _json(site.counter.now())


def _stats_reset(site: Site, _request: Request, _transport: Any) -> TargetResponse:
    before = site.counter.now()
    site.reset()
    return _json(before)


def _stats_delays(site: Site, _request: Request, _transport: Any) -> TargetResponse:
    delays = site.counter.delays
    return _json({"meant": delays.meant.tolist(), "taken": delays.taken.tolist()})


def _json(value: Any, *, status: int = 200, headers: HeaderList = ()) -> TargetResponse:
    return TargetResponse(status, msgspec.json.encode(value) + b"\n", (*JSON, *headers))


def _problem(status: int, message: str) -> TargetResponse:
    return _json({"error": message}, status=status)


def _cookies_of(request: Request) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in request.header("cookie").replace(",", ";").split(";"))
    return {name: value for name, _, value in pairs if name}


def _number(text: str, field: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise InvalidInput(field, f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


def _peer(transport: Any) -> str:
    where = transport.get_extra_info("peername")
    return f"{where[0]}:{where[1]}" if isinstance(where, tuple) else ""


def _prefixed(path: str) -> Route | None:
    return _redirect if path.startswith("/redirect/") else None


_ROUTES: dict[str, Route] = {
    "/": _root,
    "/echo": _echo,
    "/login": _login,
    "/me": _me,
    "/cookies": _cookies,
    "/redirect": _redirect,
    "/chunked": _chunked,
    "/gzip": _gzip,
    "/sse": _sse,
    "/slow-body": _slow_body,
    "/close": _close,
    "/reset": _reset,
    "/stall": _stall,
    "/ws": _websocket,
    "/stats": _stats,
    "/stats/reset": _stats_reset,
    "/stats/delays": _stats_delays,
}
