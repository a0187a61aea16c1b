"""A parser for streams of server-sent events. No I/O."""

from __future__ import annotations

import msgspec

from .errors import CallFailed

_MOST = 1024 * 1024
"""characters of one event"""


class ServerSentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    event: str = "message"
    data: str = ""
    id: str = ""
    """the last id in the stream"""
    retry: int | None = None
    """milliseconds that a client should wait before it connects again"""


class EventParser:
    """Takes text in pieces of any size, and returns the complete events. All three line endings are accepted.

    >>> EventParser().feed("event: tick\\ndata: 1\\ndata: 2\\n\\n: a comment\\n")
    [ServerSentEvent(event='tick', data='1\\n2', id='', retry=None)]
    """

    __slots__ = ("_after_cr", "_data", "_event", "_held", "_id", "_retry", "_started")

    def __init__(self) -> None:
        self._held = ""
        self._after_cr = False
        self._started = False
        self._id = ""
        self._event = ""
        self._data: list[str] = []
        self._retry: int | None = None

    def feed(self, text: str) -> list[ServerSentEvent]:
        if not self._started and text:
            self._started = True
            text = text.removeprefix("\ufeff")
        if self._after_cr and text:
            # the CR of a CRLF was the last character of the piece before
            self._after_cr = False
            text = text.removeprefix("\n")
        self._after_cr = self._after_cr or text.endswith("\r")
        *lines, self._held = (self._held + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if len(self._held) > _MOST:
            raise CallFailed("protocol", f"an event of the stream has more than {_MOST} characters in a line")
        events = (self._line(line) for line in lines)
        return [event for event in events if event is not None]

    def _line(self, line: str) -> ServerSentEvent | None:
        if not line:
            return self._event_over()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self._retry = int(value)
        return None

    def _event_over(self) -> ServerSentEvent | None:
        data, name, retry = self._data, self._event or "message", self._retry
        self._data, self._event, self._retry = [], "", None
        return ServerSentEvent(event=name, data="\n".join(data), id=self._id, retry=retry) if data else None
