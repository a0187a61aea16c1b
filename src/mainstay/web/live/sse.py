"""Server-sent events: how they are written, and an answer that consists of them.

What is sent is asked for one message at a time, and the next one only when the client has taken the last. So a slow
client holds up nobody, nothing is queued for it, and what it gets is the newest there is by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...clock import Clock, SystemClock

#: after so long without a message a sign of life is sent. Proxies give up a connection on which nothing comes, and the
#: dashboard takes one for dead
HEARTBEAT_S = 2.0
#: so long after it was last asked, whether the client is still welcome is asked before anything is sent
_WELCOME_MS = 5000
#: how long a client waits before it comes back
_RETRY_MS = 2000
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx keeps what it is sent until there is enough of it, unless told
    (b"x-accel-buffering", b"no"),
]

_encode = msgspec.json.Encoder(enc_hook=str).encode


def event(name: str, data: Any, mark: str | int | None = None) -> bytes:
    """One message. `mark` is what a client that comes back says it saw last.

    >>> event("progress", {"done": 3}, 7)
    b'event: progress\\nid: 7\\ndata: {"done":3}\\n\\n'
    """
    return event_of(name, _encode(data), mark)


def event_of(name: str, data: bytes, mark: str | int | None = None) -> bytes:
    """The same of JSON, in which there is no line break."""
    named = b"" if mark is None else b"id: %s\n" % str(mark).encode()
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), named, data)


#: no comment, which proxies see and programs in a browser do not
_ALIVE = event("alive", {})


class EventStream(Response):
    """An answer that goes on until its messages end or its client leaves.

    `still_welcome` is asked every few seconds by the clock, however much or little is sent meanwhile: a token may have
    been revoked since.
    """

    def __init__(
        self,
        messages: AsyncGenerator[bytes, None],
        *,
        still_welcome: Callable[[], Awaitable[bool]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.raw_headers = list(_HEADERS)
        self._messages = messages
        self._still_welcome = still_welcome
        self._clock = clock or SystemClock()
        self._welcome_ms = self._clock.lease_ms()
        """when it was last found to be"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        leaving = asyncio.ensure_future(_left(receive))
        try:
            if scope["method"] != "HEAD":
                await send(_body(b"retry: %d\n\n" % _RETRY_MS))
                await self._tell(send, leaving)
        finally:
            gone = leaving.done()
            await _cancelled(leaving)
            await self._messages.aclose()
        if not gone:
            await send(_body(b"", more=False))

    async def _tell(self, send: Send, leaving: asyncio.Future[None]) -> None:
        coming: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(self._messages, None))
                either: set[asyncio.Future[Any]] = {coming, leaving}
                await asyncio.wait(either, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    return
                if not await self._is_welcome():
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

    async def _is_welcome(self) -> bool:
        now_ms = self._clock.lease_ms()
        if self._still_welcome is None or now_ms - self._welcome_ms < _WELCOME_MS:
            return True
        self._welcome_ms = now_ms
        return await self._still_welcome()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(future: asyncio.Future[Any]) -> None:
    future.cancel()
    await asyncio.wait({future})


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


__all__ = ["HEARTBEAT_S", "EventStream", "event", "event_of"]
