"""A body that is read while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from ....errors import CallFailed, InvalidInput
from .encodings import Decoder, decoders, undo, undo_end

if TYPE_CHECKING:
    from .bodies import Body
    from .connection import HTTP1Connection
    from .response import HTTPResponse

HIGH = 256 * 1024
"""unread bytes, beyond which reading from the server pauses"""


class Stream:
    """Passes pieces of a body from a connection to one reader."""

    __slots__ = ("_body", "_connection", "_decoders", "_error", "_taken", "_waiter", "done", "response")

    def __init__(self, connection: HTTP1Connection, body: Body, response: HTTPResponse) -> None:
        self._connection = connection
        self._body = body
        self.response = response
        self._decoders: list[Decoder] = []
        self._error: CallFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._taken = False
        self.done = False

    def arrived(self) -> None:
        """Called by the connection when more data has arrived."""
        if sum(map(len, self._body.parts)) > HIGH:
            self._connection.pause()
        self._wake()

    def finish(self, at: float, received: int) -> None:
        self.response.ended = at
        self.response.received = received
        self.done = True
        self._wake()

    def fail(self, error: CallFailed, at: float) -> None:
        self.response.ended = at
        self.response.failure = error.kind
        self._error = error
        self.done = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        if self._taken:
            raise InvalidInput("chunks", "this stream was read already; a body can be read once")
        self._taken = True
        try:
            self._decoders = decoders(self.response.headers.get("content-encoding", ""))
            while True:
                parts, self._body.parts = self._body.parts, []
                for part in parts:
                    if piece := self._decode(part):
                        yield piece
                if self._body.parts:
                    continue
                if self.done:
                    break
                self._connection.resume()
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            if self._error is not None:
                raise self._error
            if rest := self._decoded_end():
                yield rest
        finally:
            self.close()

    def _decode(self, data: bytes) -> bytes:
        for decoder in self._decoders:
            data = undo(decoder, data)
        return data

    def _decoded_end(self) -> bytes:
        data = b""
        for decoder in self._decoders:
            data = (undo(decoder, data) if data else b"") + undo_end(decoder)
        return data

    def close(self) -> None:
        """Stop reading. If the body is not complete, the connection cannot be used again."""
        if not self.done:
            self._connection.leave()
