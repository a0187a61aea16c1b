"""An answer that does not come in one piece, or is not plain: read as it comes in. No I/O here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....errors import CallFailed
from .bodies import Body, OpenBody, body_of
from .heads import MOST, Head, read_head

if TYPE_CHECKING:
    from .stream import Stream


class ResponseReader:
    """Takes what comes in any pieces; `head` is there once it is complete."""

    __slots__ = ("_held", "_method", "body", "first", "head", "received", "stream")

    def __init__(self, method: str, first: float) -> None:
        self.first = first
        """when its first byte came"""
        self.received = 0
        self.head: Head | None = None
        self.body: Body | None = None
        self.stream: Stream | None = None
        """who reads the body meanwhile"""
        self._method = method
        self._held = b""

    def feed(self, data: bytes) -> bool:
        """True when the answer is complete. What is not HTTP raises."""
        self.received += len(data)
        if self.body is None:
            data = self._find_head(data)
        return self.body is not None and self.body.feed(data)

    def _find_head(self, data: bytes) -> bytes:
        """Look for the head, and return what follows it."""
        held = self._held + data
        while True:
            end = held.find(b"\r\n\r\n")
            _check_start(held if end < 0 else held[: end + 4])
            if end < 0:
                self._held = held
                return b""
            head = read_head(held[:end])
            held = held[end + 4 :]
            # 100 Continue and its like announce the answer; they are not it
            if head.status >= 200 or head.status == 101:
                break
        self.head = head
        self.body = body_of(head, method=self._method)
        self._held = b""
        return held

    def at_close(self) -> bool:
        """The other side closed the connection: whether the answer is complete."""
        return self.body is not None and self.body.at_close()

    @property
    def keeps(self) -> bool:
        """Whether the connection is of use afterwards."""
        assert self.head is not None
        return self.head.keep and self.head.status != 101 and not isinstance(self.body, OpenBody)

    @property
    def content(self) -> bytes:
        return b"".join(self.body.parts) if self.body is not None else b""


def _check_start(held: bytes) -> None:
    """Refuse early what cannot become a head."""
    if held[:5] != b"HTTP/"[: len(held)]:
        raise CallFailed("protocol", f"the answer is not HTTP/1; it begins {held[:60]!r}")
    if len(held) > MOST:
        raise CallFailed("protocol", f"the head of the answer has more than {MOST // 1024} KB; it is not read further")
    if b"\n\n" in held:
        raise CallFailed("protocol", "the head of the answer has line ends of one character; HTTP wants two")
