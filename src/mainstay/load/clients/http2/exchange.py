"""One call on an HTTP/2 connection: the unsent rest of its request, and its response so far."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....errors import CallFailed
from ...results import Opening
from ..call_limits import PendingCall
from ..http.calls import HTTPCall
from ..http.heads import Head
from ..http.stream import Stream

if TYPE_CHECKING:
    from .connection import HTTP2Connection


class NotProcessed(CallFailed):
    """The server has not processed the call, so it can be sent again."""


class Exchange:
    """The state of one call. A stream uses it to pause, resume or leave."""

    __slots__ = (
        "_connection", "ended", "first", "head", "id", "left", "opening", "parts", "paused", "received", "room", "sent",
        "size", "stream", "unread", "uploading", "waiting", "whole", "window", "written",
    )  # fmt: skip

    def __init__(
        self,
        connection: HTTP2Connection,
        number: int,
        call: HTTPCall,
        waiting: PendingCall,
        opening: Opening | None,
        window: int,
    ) -> None:
        self._connection = connection
        self.id = number
        self.waiting = waiting
        self.opening = opening
        self.left = bytearray(call.body)
        """the unsent rest of the request body"""
        self.whole = call.upload is None
        """whether the request body is complete"""
        self.window = window
        """bytes of the request body that the server accepts"""
        self.room: asyncio.Future[None] | None = None
        self.uploading: asyncio.Task[None] | None = None
        self.sent = 0
        self.written = 0.0
        self.head: Head | None = None
        self.parts: list[bytes] = []
        """pieces of the response body; a stream takes them out"""
        self.size = 0
        """of the response body"""
        self.first = 0.0
        self.received = 0
        self.unread = 0
        """received bytes that are not acknowledged yet"""
        self.paused = False
        self.stream: Stream | None = None
        self.ended = False

    def pause(self) -> None:
        """Stop acknowledging: the reader of a stream is slower than the server."""
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self._connection.took(self)

    def leave(self) -> None:
        """The reader of the stream stops."""
        self._connection.leave(self)
