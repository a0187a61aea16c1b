"""Makes one call with a client of load tests, chosen by the scheme of the URL."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from ...errors import InvalidInput
from ..amounts import duration_of
from ..clients.all import Clients
from ..clients.network import Network, Timeouts, Tls
from ..prepared import split
from ..results import Opening, Result
from .options import ConnectionOptions, PingOptions

_HTTP = ("http", "https", "http+unix")


class PingReply(msgspec.Struct, frozen=True, kw_only=True):
    """The response to one call, and where its time went."""

    request_line: str
    """the method and the URL, without secrets"""
    result: Result
    phases: dict[str, float]
    """seconds, in the order in which they happened"""
    status_line: str
    """the first line of the response"""
    headers: list[tuple[str, str]] = []
    content: bytes = b""

    @property
    def refused(self) -> bool:
        """A status of 400 or more."""
        return not self.result.ok


async def make_call(url: str, request: PingOptions, connection: ConnectionOptions) -> PingReply:
    """Make the call. Raises `CallFailed` if there is no response."""
    parts = split(url)
    if parts.scheme not in _HTTP and (request.http2 or request.method or request.header):
        raise InvalidInput("url", f"{parts.shown!r} is not for HTTP; leave out --http2, --method and --header")
    limit = duration_of(request.timeout, field="timeout")
    network = Network(
        timeouts=Timeouts(connect=limit, write=limit, read=limit, total=limit),
        tls=Tls(verify=not connection.insecure, ca=connection.ca, cert=connection.cert, key=connection.key),
        proxy=connection.proxy,
    )
    data = None if request.data is None else _data(request.data)
    clients = Clients(network)
    try:
        if parts.scheme in _HTTP:
            return await _http(clients, url, parts.shown, request, data)
        return await _message(clients, parts.scheme, url, parts.shown, data)
    finally:
        await clients.close()


async def _http(clients: Clients, url: str, shown: str, request: PingOptions, data: bytes | None) -> PingReply:
    client: Any = clients.http2 if request.http2 else clients.http
    method = (request.method or ("GET" if data is None else "POST")).upper()
    options: dict[str, Any] = {"redirects": request.redirects}
    if request.header:
        options["headers"] = dict(_header(text) for text in request.header)
    if data is not None:
        options["data"] = data
    response = await client.request(method, url, **options)
    version = response.version if "/" in str(response.version) else f"HTTP/{response.version}"
    redirects = f", after {response.redirects} redirects" if response.redirects else ""
    fields = response.headers
    return PingReply(
        request_line=f"{method} {shown}",
        result=response,
        phases=phases_of(response),
        status_line=f"{version} {response.status} {response.reason}".rstrip() + redirects,
        headers=[(name, value) for name in fields for value in fields.getlist(name)],
        content=response.content,
    )


async def _message(clients: Any, scheme: str, url: str, shown: str, data: bytes | None) -> PingReply:
    name = {"ws": "websocket", "wss": "websocket", "tls": "tcp"}.get(scheme, scheme)
    client = getattr(clients, name)
    if data is None:
        if name == "udp":
            raise InvalidInput("data", "a datagram needs content; pass --data")
        started = time.perf_counter()
        async with client.connect(url):
            ended = time.perf_counter()
        opened = Result(started=started, ended=ended, written=ended, opening=Opening(0.0, ended - started, 0.0))
        return PingReply(
            request_line=shown, result=opened, phases={"connect": ended - started}, status_line="connected"
        )
    call = client.send if name == "websocket" else client.bidirectional
    content: bytes | str = data
    if name == "websocket":
        with contextlib.suppress(UnicodeDecodeError):  # binary data is sent as it is
            content = data.decode()
    response = await call(url, content)
    return PingReply(
        request_line=shown,
        result=response,
        phases=phases_of(response),
        status_line="a response",
        content=response.content,
    )


def phases_of(result: Result) -> dict[str, float]:
    """The phases of a call; together they are its whole time.

    >>> opening = Opening(blocked=0.0, connect=0.25, tls=0.0, dns=0.125)
    >>> phases = phases_of(Result(started=1.0, written=1.5, first=2.0, ended=4.0, opening=opening))
    >>> phases["dns"], phases["connect"], phases["send"], phases["wait"], phases["receive"]
    (0.125, 0.25, 0.125, 0.5, 2.0)
    """
    phases: dict[str, float] = {}
    opening = result.opening
    if opening is not None:
        phases = {"dns": opening.dns, "connect": opening.connect, "tls": opening.tls}
        phases = {name: took for name, took in phases.items() if took or name == "connect"}
    phases["send"] = max(0.0, result.written - result.started - sum(phases.values()))
    phases["wait"] = max(0.0, result.first - result.written)
    phases["receive"] = max(0.0, result.ended - result.first)
    return phases


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InvalidInput("header", f"{text!r} is not a header; write it like accept:text/html")
    return name.strip(), value.strip()


def _data(text: str) -> bytes:
    if not text.startswith("@"):
        return text.encode()
    if text == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise InvalidInput("data", f"{text[1:]} cannot be read ({error.strerror or error})") from None
