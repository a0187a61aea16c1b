"""The address of the server, the token, and the use of httpx."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ..errors import InvalidInput, MainstayError
from ..stores import shown_url
from ..web import extra_needed
from .calls import JSON, MSGPACK, PREFIX, ApiAnswer, ApiCall
from .exchange import Lost

with extra_needed("mainstay.Client"):
    import httpx

#: the longest silence of a stream; the server sends a heartbeat every 2 seconds
_SILENT_S = 45.0
_TOKEN = re.compile(r"[\x21-\x7e]+")
_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)

Verify = bool | ssl.SSLContext


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The server and the headers of every request. Its repr contains no secret."""

    url: str
    """without a slash at its end"""
    shown: str
    """the same without its secrets"""
    headers: Mapping[str, str]
    timeout_s: float

    def request(self, call: ApiCall[Any]) -> dict[str, Any]:
        """The arguments of httpx for a call."""
        # responses with values of the user come as MessagePack, all others as JSON
        headers = {**call.headers, "Accept": f"{MSGPACK}, {JSON}"}
        if call.body is not None:
            headers["Content-Type"] = call.media
        return {
            "method": call.method,
            "url": self.url + PREFIX + call.path,
            "content": call.body,
            "headers": headers,
            "timeout": httpx.Timeout(self.timeout_s, read=self.timeout_s + call.wait_s),
        }

    def streaming(self, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
        """The request that opens a stream."""
        timeout = httpx.Timeout(self.timeout_s, read=max(self.timeout_s, _SILENT_S))
        return {"method": "GET", "url": self.url + PREFIX + path, "headers": dict(headers), "timeout": timeout}

    def __repr__(self) -> str:
        return f"ServerAddress({self.shown!r})"


def server_address(url: str | None, *, token: str | None, insecure: bool, timeout_s: float) -> ServerAddress:
    """Check the address and the token; raises `InvalidInput`. No message contains a secret."""
    url = url or os.environ.get("MAINSTAY_URL") or ""
    token = token if token is not None else os.environ.get("MAINSTAY_TOKEN") or None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            "url",
            f"{shown_url(url)!r} is not a server URL; write Client('http://127.0.0.1:8330'), or set MAINSTAY_URL",
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInput("url", "give the address alone; pass the token as token=..., and the store as store=...")
    headers = {"User-Agent": f"mainstay/{version('mainstay')}"}
    if token is not None:
        if not _TOKEN.fullmatch(token):
            raise InvalidInput("token", "is not a token: a token has letters, digits and signs, without spaces")
        if parts.scheme == "http" and not insecure and not _LOOPBACK.fullmatch(parts.hostname):
            raise InvalidInput(
                "url",
                f"the token could be read on its way to {parts.hostname}; use https://, or pass insecure=True",
            )
        headers["Authorization"] = f"Bearer {token}"
    return ServerAddress(url=url.rstrip("/"), shown=shown_url(url.rstrip("/")), headers=headers, timeout_s=timeout_s)


def answer_of(response: httpx.Response, body: bytes) -> ApiAnswer:
    """A response, independent of httpx."""
    return ApiAnswer(
        status=response.status_code,
        headers={name.lower(): value for name, value in response.headers.items()},
        body=body,
    )


def lost(error: httpx.TransportError | httpx.DecodingError) -> Lost:
    """The loss of a request that was not answered."""
    cause = str(error) or type(error).__name__
    return Lost(cause, sent=not isinstance(error, _UNSENT))


def check_open(http: httpx.Client | httpx.AsyncClient) -> None:
    """Raise an error if the client was closed."""
    if http.is_closed:
        raise MainstayError("this client was closed; create another one")


#: errors between a request and its response
BROKEN = (httpx.TransportError, httpx.DecodingError)

__all__ = ["BROKEN", "ServerAddress", "Verify", "answer_of", "check_open", "httpx", "lost", "server_address"]
