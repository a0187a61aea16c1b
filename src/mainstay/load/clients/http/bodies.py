"""Bodies of responses as they arrive: counted, chunked, or until the connection closes. No I/O."""

from __future__ import annotations

import re
from typing import Protocol

from ....errors import CallFailed
from .heads import CHUNKED, UNTIL_CLOSE, Head

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
_LONGEST_LINE = 16 * 1024


class Body(Protocol):
    """Takes the bytes that follow a head, in any pieces."""

    parts: list[bytes]
    """the pieces so far; a stream takes them out"""

    def feed(self, data: bytes) -> bool:
        """True when the body is complete. Raises `CallFailed` for bytes after its end."""
        ...

    def at_close(self) -> bool:
        """The server closed the connection: whether the body is complete."""
        ...


def body_of(head: Head, *, method: str) -> Body:
    length = 0 if method == "HEAD" else head.length
    if length == CHUNKED:
        return ChunkedBody()
    if length == UNTIL_CLOSE:
        return OpenBody()
    return CountedBody(length)


class CountedBody:
    """A body with a Content-Length."""

    __slots__ = ("left", "parts")

    def __init__(self, length: int) -> None:
        self.left = length
        self.parts: list[bytes] = []

    def feed(self, data: bytes) -> bool:
        if data:
            if len(data) > self.left:
                raise _too_much(data[self.left :])
            self.left -= len(data)
            self.parts.append(data)
        return self.left == 0

    def at_close(self) -> bool:
        return False


class OpenBody:
    """A body up to the end of the connection."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def feed(self, data: bytes) -> bool:
        if data:
            self.parts.append(data)
        return False

    def at_close(self) -> bool:
        return True


class ChunkedBody:
    """A chunked body; trailers are read and dropped.

    >>> body = ChunkedBody()
    >>> body.feed(b"5\\r\\nhel"), body.feed(b"lo\\r\\n0\\r\\n\\r\\n"), b"".join(body.parts)
    (False, True, b'hello')
    """

    __slots__ = ("_held", "_left", "_step", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._held = b""
        """an incomplete line"""
        self._left = 0
        self._step = "size"

    def feed(self, data: bytes) -> bool:
        at = 0
        if self._held:
            data = self._held + data
            self._held = b""
        while at < len(data):
            if self._step == "bytes":
                piece = data[at : at + self._left]
                self.parts.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._step = "end"
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._hold(data[at:])
                return False
            line = data[at:end]
            at = end + 2
            if self._line(line):
                if at < len(data):
                    raise _too_much(data[at:])
                return True
        return False

    def _hold(self, start: bytes) -> None:
        wrong = len(start) > _LONGEST_LINE or (self._step == "end" and start != b"\r") or b"\n" in start
        if wrong:
            raise _no_chunk(start)
        self._held = start

    def _line(self, line: bytes) -> bool:
        """True at the end of the body."""
        if self._step == "trailers":
            return not line
        if self._step == "end":
            if line:
                raise _no_chunk(line)
            self._step = "size"
            return False
        size = _SIZE.fullmatch(line)
        if size is None:
            raise _no_chunk(line)
        self._left = int(size[1], 16)
        self._step = "bytes" if self._left else "trailers"
        return False

    def at_close(self) -> bool:
        return False


def _too_much(rest: bytes) -> CallFailed:
    return CallFailed("protocol", f"the server sent more than the announced response: {rest[:60]!r}")


def _no_chunk(line: bytes) -> CallFailed:
    return CallFailed("protocol", f"the response is chunked, but {line[:60]!r} is not the start or end of a chunk")
