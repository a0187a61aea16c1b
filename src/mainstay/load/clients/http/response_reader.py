"""Reads a response that is not plain, or arrives in several pieces. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....errors import CallFailed
from .bodies import Body, OpenBody, body_of
from .heads import MOST, Head, read_head

if TYPE_CHECKING:
    from .stream import Stream


class ResponseReader:
    """Takes bytes in pieces of any size; `head` is set when it is complete."""

    __slots__ = ("_held", "_method", "body", "first", "head", "received", "stream")

    def __init__(self, method: str, first: float) -> None:
        self.first = first
        """when its first byte arrived"""
        self.received = 0
        self.head: Head | None = None
        self.body: Body | None = None
        self.stream: Stream | None = None
        """the reader of the body, if it is streamed"""
        self._method = method
        self._held = b""

    def feed(self, data: bytes) -> bool:
        """True when the response is complete. Raises `CallFailed` if it is not HTTP."""
        self.received += len(data)
        if self.body is None:
            data = self._find_head(data)
        return self.body is not None and self.body.feed(data)

    def _find_head(self, data: bytes) -> bytes:
        """Find the head, and return the bytes after it."""
        held = self._held + data
        while True:
            end = held.find(b"\r\n\r\n")
            _check_start(held if end < 0 else held[: end + 4])
            if end < 0:
                self._held = held
                return b""
            head = read_head(held[:end])
            held = held[end + 4 :]
            # 100 Continue and other interim responses come before the final one
            if head.status >= 200 or head.status == 101:
                break
        self.head = head
        self.body = body_of(head, method=self._method)
        self._held = b""
        return held

    def at_close(self) -> bool:
        """The server closed the connection: whether the response is complete."""
        return self.body is not None and self.body.at_close()

    @property
    def keeps(self) -> bool:
        """Whether the connection can be used again."""
        assert self.head is not None
        return self.head.keep and self.head.status != 101 and not isinstance(self.body, OpenBody)

    @property
    def content(self) -> bytes:
        return b"".join(self.body.parts) if self.body is not None else b""


def _check_start(held: bytes) -> None:
    """Raise `CallFailed` early for bytes that cannot be a head."""
    if held[:5] != b"HTTP/"[: len(held)]:
        raise CallFailed("protocol", f"the response is not HTTP/1; it begins with {held[:60]!r}")
    if len(held) > MOST:
        raise CallFailed("protocol", f"the head of the response is larger than {MOST // 1024} KB")
    if b"\n\n" in held:
        raise CallFailed("protocol", "the head of the response ends its lines with LF only; HTTP requires CRLF")
