"""Server-sent events: their format, and a response that consists of them.

The next message is made when the client has received the last one. So a slow client delays no other, nothing is queued
for it, and it gets the newest state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...clock import Clock, SystemClock

#: after this time without a message a heartbeat is sent. Proxies close a silent connection, and the dashboard takes it
#: for dead
HEARTBEAT_S = 2.0
#: the time after which the permission of the client is checked again
_PERMITTED_MS = 5000
#: how long a client waits before it comes back
_RETRY_MS = 2000
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # otherwise nginx buffers the stream
    (b"x-accel-buffering", b"no"),
]

_encode = msgspec.json.Encoder(enc_hook=str).encode


def event(name: str, data: Any, mark: str | int | None = None) -> bytes:
    """One message. A client that reconnects sends the `mark` of the last message that it received.

    >>> event("progress", {"done": 3}, 7)
    b'event: progress\\nid: 7\\ndata: {"done":3}\\n\\n'
    """
    return event_of(name, _encode(data), mark)


def event_of(name: str, data: bytes, mark: str | int | None = None) -> bytes:
    """The same for JSON without line breaks."""
    named = b"" if mark is None else b"id: %s\n" % str(mark).encode()
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), named, data)


#: an event, since scripts in a browser do not see comments
_ALIVE = event("alive", {})


class EventStream(Response):
    """A response that lasts until its messages end or its client disconnects.

    `still_permitted` is called every few seconds, since the token may have been revoked.
    """

    def __init__(
        self,
        messages: AsyncGenerator[bytes, None],
        *,
        still_permitted: Callable[[], Awaitable[bool]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.raw_headers = list(_HEADERS)
        self._messages = messages
        self._still_permitted = still_permitted
        self._clock = clock or SystemClock()
        self._permitted_ms = self._clock.lease_ms()
        """time of the last check"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        leaving = asyncio.ensure_future(_left(receive))
        try:
            if scope["method"] != "HEAD":
                await send(_body(b"retry: %d\n\n" % _RETRY_MS))
                await self._send_messages(send, leaving)
        finally:
            gone = leaving.done()
            await _cancelled(leaving)
            await self._messages.aclose()
        if not gone:
            await send(_body(b"", more=False))

    async def _send_messages(self, send: Send, leaving: asyncio.Future[None]) -> None:
        coming: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(self._messages, None))
                either: set[asyncio.Future[Any]] = {coming, leaving}
                await asyncio.wait(either, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    return
                if not await self._is_permitted():
                    return
                if not coming.done():
                    await send(_body(_ALIVE))
                    continue
                message = coming.result()
                if message is None:
                    return
                coming = None
                await send(_body(message))
        finally:
            if coming is not None:
                await _cancelled(coming)

    async def _is_permitted(self) -> bool:
        now_ms = self._clock.lease_ms()
        if self._still_permitted is None or now_ms - self._permitted_ms < _PERMITTED_MS:
            return True
        self._permitted_ms = now_ms
        return await self._still_permitted()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(future: asyncio.Future[Any]) -> None:
    future.cancel()
    await asyncio.wait({future})


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


__all__ = ["HEARTBEAT_S", "EventStream", "event", "event_of"]
