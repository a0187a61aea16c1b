"""The responses of message protocols. Importable without the packages of these protocols."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import InvalidInput
from ..results import Opening, Result


class Message(Result):
    """A response of one message. Empty for a call that only sends."""

    __slots__ = ("content",)

    def __init__(
        self,
        content: bytes,
        *,
        started: float,
        written: float,
        first: float,
        ended: float,
        opening: Opening | None,
        sent: int,
        received: int,
        status: int | str = "ok",
    ) -> None:
        # not super().__init__, which is slower; this runs once per call
        self.content = content
        self.started = started
        self.written = written
        self.first = first
        self.ended = ended
        self.opening = opening
        self.sent = sent
        self.received = received
        self.status = status
        self.failure = ""

    def text(self, encoding: str = "utf-8") -> str:
        """The message as text; invalid bytes become "\ufffd"."""
        return self.content.decode(encoding, "replace")

    def json(self, type: Any = None) -> Any:  # noqa: A002 - as the body is described everywhere in Mainstay
        """The message as data; checked against `type`, if given."""
        try:
            return msgspec.json.decode(self.content, type=Any if type is None else type)
        except msgspec.DecodeError as error:
            raise InvalidInput("json", f"the response is not that ({error}): {self.content[:60]!r}") from None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status}, {self.received} bytes, {self.elapsed * 1000:.1f} ms>"


class TCPResponse(Message):
    """The bytes that were received over a raw TCP connection."""

    __slots__ = ()


class UDPResponse(Message):
    """A datagram."""

    __slots__ = ()


class WebsocketResponse(Message):
    """A WebSocket message. That of `connect` has the status 101 and no content."""

    __slots__ = ("is_text",)

    is_text: bool

    @property
    def data(self) -> str | bytes:
        """Text or bytes, as the other side sent it."""
        return self.text() if self.is_text else self.content
