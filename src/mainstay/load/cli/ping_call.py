"""One call with a client of load tests, by the scheme of its URL."""

from __future__ import annotations

import asyncio
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

_HTTP = ("http", "https", "http+unix")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The call."""

    url: str
    method: str | None = None
    headers: tuple[str, ...] = ()
    data: str | None = None
    http2: bool = False
    redirects: int = 10
    timeout: str = "30s"
    verify: bool = True
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    proxy: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    asked: str
    """the method and the URL, without its secrets"""
    result: Result
    phases: dict[str, float]
    """seconds, in the order in which they happened"""
    said: str
    """the first line of the answer"""
    headers: list[tuple[str, str]] = []
    content: bytes = b""

    @property
    def refused(self) -> bool:
        """A status from 400 on."""
        return not self.result.ok


def pinged(wanted: Wanted) -> Answer:
    """Make the call. What comes to no answer raises `CallFailed`."""
    parts = split(wanted.url)
    if parts.scheme not in _HTTP and (wanted.http2 or wanted.method or wanted.headers):
        raise InvalidInput("url", f"{parts.shown!r} is not for HTTP; leave out --http2, --method and --header")
    limit = duration_of(wanted.timeout, field="timeout")
    network = Network(
        timeouts=Timeouts(connect=limit, write=limit, read=limit, total=limit),
        tls=Tls(verify=wanted.verify, ca=wanted.ca, cert=wanted.cert, key=wanted.key),
        proxy=wanted.proxy,
    )
    data = None if wanted.data is None else _data(wanted.data)

    async def call() -> Answer:
        clients = Clients(network)
        try:
            if parts.scheme in _HTTP:
                return await _http(clients, wanted, parts.shown, data)
            return await _message(clients, parts.scheme, wanted.url, parts.shown, data)
        finally:
            await clients.close()

    return asyncio.run(call())


async def _http(clients: Clients, wanted: Wanted, shown: str, data: bytes | None) -> Answer:
    client: Any = clients.http2 if wanted.http2 else clients.http
    method = (wanted.method or ("GET" if data is None else "POST")).upper()
    options: dict[str, Any] = {"redirects": wanted.redirects}
    if wanted.headers:
        options["headers"] = dict(_header(text) for text in wanted.headers)
    if data is not None:
        options["data"] = data
    response = await client.request(method, wanted.url, **options)
    version = response.version if "/" in str(response.version) else f"HTTP/{response.version}"
    led = f", after {response.redirects} redirects" if response.redirects else ""
    fields = response.headers
    return Answer(
        asked=f"{method} {shown}",
        result=response,
        phases=phases_of(response),
        said=f"{version} {response.status} {response.reason}".rstrip() + led,
        headers=[(name, value) for name in fields for value in fields.getlist(name)],
        content=response.content,
    )


async def _message(clients: Any, scheme: str, url: str, shown: str, data: bytes | None) -> Answer:
    name = {"ws": "websocket", "wss": "websocket", "tls": "tcp"}.get(scheme, scheme)
    client = getattr(clients, name)
    if data is None:
        if name == "udp":
            raise InvalidInput("data", "a datagram has to have something in it; pass --data")
        started = time.perf_counter()
        async with client.connect(url):
            ended = time.perf_counter()
        opened = Result(started=started, ended=ended, written=ended, opening=Opening(0.0, ended - started, 0.0))
        return Answer(asked=shown, result=opened, phases={"connect": ended - started}, said="connected")
    call = client.send if name == "websocket" else client.bidirectional
    text = data.decode() if name == "websocket" and _is_text(data) else data
    response = await call(url, text)
    return Answer(asked=shown, result=response, phases=phases_of(response), said="an answer", content=response.content)


def phases_of(result: Result) -> dict[str, float]:
    """Where the time of a call went; together they are all of it.

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


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
