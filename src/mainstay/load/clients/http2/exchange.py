"""One call on a connection that carries many: its request as far as it is not sent, its answer as far as it came."""

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
    """The server says that it has done nothing about the call, or cannot have: it may be sent again."""


class Exchange:
    """Also what a stream asks to go on or to stop."""

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
        """of the request's body, not sent yet"""
        self.whole = call.upload is None
        """nothing is added to it any more"""
        self.window = window
        """how much of it the server takes"""
        self.room: asyncio.Future[None] | None = None
        self.uploading: asyncio.Task[None] | None = None
        self.sent = 0
        self.written = 0.0
        self.head: Head | None = None
        self.parts: list[bytes] = []
        """of the answer's body; whoever streams takes them away"""
        self.size = 0
        """of the answer's body"""
        self.first = 0.0
        self.received = 0
        self.unread = 0
        """bytes that the server has not been told that they were taken"""
        self.paused = False
        self.stream: Stream | None = None
        self.ended = False

    def pause(self) -> None:
        """The reader of a stream is behind: the server is not told to send more."""
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self._connection.took(self)

    def leave(self) -> None:
        """Whoever reads the stream has enough."""
        self._connection.leave(self)
