"""The response of an HTTP/2 call."""

from __future__ import annotations

from ..http.response import HTTPResponse


class HTTP2Response(HTTPResponse):
    """A response like that of HTTP/1.1; its `version` is "2", and it has no reason phrase."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<HTTP2Response {self.status}, {self.received} bytes, {self.elapsed * 1000:.1f} ms>"
