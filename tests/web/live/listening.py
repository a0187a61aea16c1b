"""A client of one stream, without a socket. It takes a message when it is asked to, and is as slow as it likes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tests.web.conftest import BASE


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    event: str
    data: Any
    id: str | None = None


class Listener:
    """What one request is answered."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.over = False
        self.raw = b""
        self._left = asyncio.Event()
        self._asked = False
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._blocks: deque[bytes] = deque()

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        if self._left.is_set():
            return
        if message.get("body"):
            await self._chunks.put(message["body"])
        if not message.get("more_body"):
            await self._chunks.put(None)

    def leave(self) -> None:
        self._left.set()

    async def next(self, *wanted: str) -> Told:
        """The next message, of one of these events if any are named; else mere signs of life are passed over."""
        while True:
            while not self._blocks:
                chunk = await self.chunk()
                if chunk is None:
                    self.over = True
                    raise EOFError("the stream has ended")
                self.raw += chunk
                self._blocks.extend(block for block in chunk.split(b"\n\n") if block)
            told = _parsed(self._blocks.popleft())
            if told is not None and (told.event in wanted if wanted else told.event != "alive"):
                return told

    async def chunk(self) -> bytes | None:
        """The next part as it was sent; None: there is no more."""
        return await asyncio.wait_for(self._chunks.get(), 60)

    async def rest(self) -> list[Told]:
        """All there is until the end."""
        found = []
        with contextlib.suppress(EOFError):
            while True:
                found.append(await self.next())
        return found

    async def body(self) -> bytes:
        """Of an answer that is no stream."""
        while (chunk := await self.chunk()) is not None:
            self.raw += chunk
        return self.raw


def _parsed(block: bytes) -> Told | None:
    fields = dict(line.partition(b": ")[::2] for line in block.split(b"\n") if not line.startswith(b":"))
    if b"event" not in fields:
        return None
    mark = fields.get(b"id")
    return Told(
        event=fields[b"event"].decode(),
        id=None if mark is None else mark.decode(),
        data=msgspec.json.decode(fields[b"data"]),
    )


@contextlib.asynccontextmanager
async def listening(app: Any, path: str, *, last: str | None = None, **headers: str) -> AsyncIterator[Listener]:
    """Ask for a stream, and leave it in the end, whatever is still to come."""
    listener = Listener()
    path, _, query = path.partition("?")
    given = {"host": BASE.removeprefix("http://"), **headers}
    if last is not None:
        given["last-event-id"] = last
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8330),
    }
    task = asyncio.create_task(app(scope, listener.receive, listener.send))
    try:
        yield listener
    finally:
        listener.leave()
        while not task.done():
            # it may wait for us to take what it has sent
            with contextlib.suppress(asyncio.QueueEmpty):
                listener._chunks.get_nowait()
            await asyncio.wait({task}, timeout=0.01)
        await task
