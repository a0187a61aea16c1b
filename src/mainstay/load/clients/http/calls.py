"""A call as it is sent: its bytes, and the data to send it again, to another URL."""

from __future__ import annotations

from collections.abc import AsyncIterable, Container, Iterable

from ...prepared import Cookies, Headers, URLParts
from ..network import Timeouts
from .encodings import ACCEPTED

_DEFAULTS = (
    ("user-agent", b"User-Agent: mainstay\r\n"),
    ("accept", b"Accept: */*\r\n"),
    ("accept-encoding", f"Accept-Encoding: {ACCEPTED}\r\n".encode()),
)
_ALL_DEFAULTS = b"".join(line for _, line in _DEFAULTS)
#: methods that can be repeated safely
_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})

Upload = Iterable[bytes] | AsyncIterable[bytes]


class HTTPCall:
    """One encoded request. It is immutable, so users share equal ones."""

    __slots__ = (
        "auth", "body", "content_type", "cookies", "expect", "headers", "lead", "limits", "method", "parts",
        "redirects", "repeatable", "request", "shortest", "size", "stream", "upload",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        parts: URLParts,
        *,
        limits: Timeouts,
        headers: Headers | None = None,
        auth: bytes | None = None,
        cookies: Cookies | None = None,
        jar: str = "",
        body: bytes = b"",
        content_type: str = "",
        upload: Upload | None = None,
        redirects: int = 10,
        expect: Container[int] | None = None,
        stream: bool = False,
        proxy: bytes | None = None,
    ) -> None:
        """`jar`: the cookies of the user for this URL. `proxy`: the header for a proxy that reads the request."""
        self.method = method
        self.parts = parts
        self.limits = limits
        self.shortest = limits.shortest
        self.headers = headers
        self.auth = auth
        """the header line"""
        self.cookies = cookies
        self.body = body
        self.content_type = content_type
        self.upload = upload
        self.redirects = redirects
        self.expect = expect
        self.stream = stream
        self.repeatable = method in _IDEMPOTENT and upload is None
        self.lead = self._encoded_lead(jar, proxy)
        """the head without the length of the body"""
        self.request = self.encoded()
        self.size = len(self.request)

    @property
    def what(self) -> str:
        """For messages."""
        return f"{self.method} {self.parts.shown}"

    def with_body(self, body: bytes) -> HTTPCall:
        """The same call with another body; everything else is encoded already."""
        made = HTTPCall.__new__(HTTPCall)
        made.method = self.method
        made.parts = self.parts
        made.limits = self.limits
        made.shortest = self.shortest
        made.headers = self.headers
        made.auth = self.auth
        made.cookies = self.cookies
        made.body = body
        made.content_type = self.content_type
        made.upload = None
        made.redirects = self.redirects
        made.expect = self.expect
        made.stream = self.stream
        made.repeatable = self.repeatable
        made.lead = self.lead
        made.request = made.encoded()
        made.size = len(made.request)
        return made

    def encoded(self) -> bytes:
        """The whole request."""
        # the length comes last, so that the head before it does not depend on the body
        if self.upload is not None:
            return b"%bTransfer-Encoding: chunked\r\n\r\n" % self.lead
        if self.body or self.method in _WITH_BODY:
            return b"%bContent-Length: %d\r\n\r\n%b" % (self.lead, len(self.body), self.body)
        return b"%b\r\n" % self.lead

    def _encoded_lead(self, jar: str, proxy: bytes | None) -> bytes:
        parts = self.parts
        named = self.headers.names if self.headers else frozenset[str]()
        target = parts.target if proxy is None else b"http://%b%b" % (parts.authority, parts.target)
        lines = [b"%b %b HTTP/1.1\r\n" % (self.method.encode(), target)]
        if "host" not in named:
            lines.append(b"Host: %b\r\n" % parts.authority)
        lines.append(_ALL_DEFAULTS if not named else b"".join(line for name, line in _DEFAULTS if name not in named))
        if self.headers is not None:
            lines.append(self.headers.block)
        if self.auth is not None and "authorization" not in named:
            lines.append(self.auth)
        own = self.cookies.text if self.cookies is not None else ""
        if cookies := "; ".join(text for text in (jar, own) if text):
            lines.append(b"Cookie: %b\r\n" % cookies.encode("latin-1", "replace"))
        if self.content_type and "content-type" not in named:
            lines.append(b"Content-Type: %b\r\n" % self.content_type.encode("latin-1", "replace"))
        if proxy is not None:
            lines.append(proxy)
        return b"".join(lines)
