"""The response of an HTTP call."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import msgspec

from ....errors import CallFailed, InvalidInput
from ...results import Opening, Result
from .calls import HTTPCall
from .cookies import cookie_pair
from .encodings import decoded, is_known
from .heads import Fields, Head

if TYPE_CHECKING:
    from .stream import Stream


class HTTPResponse(Result):
    """A response. Expensive parts (headers, JSON) are computed on demand.

    `ok` is False, and `failure` says "http 503", for statuses from 400 on that were not in `expect`.
    """

    __slots__ = ("_body", "_call", "_content", "_head", "redirects", "stream")

    def __init__(
        self,
        call: HTTPCall,
        head: Head,
        body: bytes,
        started: float,
        written: float,
        first: float,
        ended: float,
        received: int,
        opening: Opening | None,
    ) -> None:
        # not super().__init__, which is slower; this runs once per request
        self.started = started
        self.written = written
        self.first = first
        self.ended = ended
        self.opening = opening
        self.status = head.status
        self.failure = head.failure
        self.sent = call.size
        self.received = received
        self.redirects = 0
        """number of redirects that were followed"""
        self._call = call
        self._head = head
        self._body = body
        self._content: bytes | None = None
        self.stream: Stream | None = None
        """the source of its body, if it is read as a stream"""
        if call.expect is not None:
            self.failure = "" if head.status in call.expect else f"http {head.status}"

    @property
    def status_code(self) -> int:
        return self._head.status

    @property
    def reason(self) -> str:
        """The reason phrase."""
        return self._head.reason

    @property
    def version(self) -> str:
        return self._head.version

    @property
    def headers(self) -> Fields:
        return self._head.fields

    @property
    def url(self) -> str:
        """The URL of the response, after all redirects."""
        return self._call.parts.full

    @property
    def method(self) -> str:
        return self._call.method

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that this response sets."""
        return dict(pair for line in self._head.cookies if (pair := cookie_pair(line)) is not None)

    @property
    def content(self) -> bytes:
        """The body, decompressed."""
        if self._content is None:
            if self.stream is not None:
                raise InvalidInput("content", "this response is a stream; read it with chunks() or read()")
            encoding = self._head.encoding
            self._content = decoded(self._body, encoding) if encoding else self._body
        return self._content

    def broken_body(self) -> CallFailed | None:
        """The error of a compressed body that is cut off, or not in the announced encoding.

        Such a response is a failed call, whether the step reads the body or not. An unknown encoding is left to the
        step, which may never read the body.
        """
        if self.failure or not is_known(self._head.encoding):
            return None
        try:
            _ = self.content
        except CallFailed as error:
            return CallFailed(error.kind, f"{self._call.parts.shown}: {error}")
        return None

    def text(self, encoding: str | None = None) -> str:
        """The body as text, in the charset of the response or UTF-8. Invalid bytes become "\ufffd"."""
        charset = encoding or _charset(self._head.fields.get("content-type", "")) or "utf-8"
        try:
            return self.content.decode(charset, "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self, type: Any = None) -> Any:  # noqa: A002 - as the body is described everywhere in Mainstay
        """The body as data; checked against `type`, if given."""
        try:
            return msgspec.json.decode(self.content, type=Any if type is None else type)
        except msgspec.DecodeError as error:
            start = self.content[:60]
            raise InvalidInput(
                "json", f"the response of {self._call.parts.shown} is not that ({error}): {start!r}"
            ) from None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body of a stream as it arrives, decompressed. `ended` is set at its end.

        Leaving the loop before that closes the connection.
        """
        if self.stream is None:
            yield self.content
            return
        pieces = self.stream.pieces()
        try:
            async for piece in pieces:
                yield piece
        finally:
            # now, not when the garbage is collected
            await pieces.aclose()

    async def read(self) -> bytes:
        """The rest of the body, also of a stream."""
        return b"".join([piece async for piece in self.chunks()])

    def leave(self) -> None:
        """Stop reading a stream. Before its end, this closes its connection, and ends the call."""
        if self.stream is not None:
            self.stream.close()

    def __repr__(self) -> str:
        return f"<HTTPResponse {self.status} {self._head.reason}, {self.received} bytes, {self.elapsed * 1000:.1f} ms>"


def _charset(content_type: str) -> str:
    for part in content_type.split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""
