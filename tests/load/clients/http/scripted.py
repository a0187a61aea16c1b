"""A server that says what it is told to, byte by byte, and remembers what it heard."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Heard:
    """One request."""

    def __init__(self, head: bytes, body: bytes, connection: int) -> None:
        self.line, *lines = head.decode("latin-1").split("\r\n")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body
        self.connection = connection
        """the first is 1"""

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


class Talk:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the client closes."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()


Answering = Callable[[Heard, Talk], Awaitable[bytes | None]]


class Server:
    """`heard` has all requests; `answer` is asked for each: bytes to send, or None to close the connection."""

    def __init__(self, answer: Answering) -> None:
        self.heard: list[Heard] = []
        self.connections = 0
        self.url = ""
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        mine = self.connections
        talk = Talk(reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        # cancelled: the test is over
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                heard = Heard(head, b"", mine)
                heard.body = await _body(heard, reader)
                self.heard.append(heard)
                answer = await self._answer(heard, talk)
                if answer is None:
                    break
                await talk.say(answer)
        self.tasks.discard(task)
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def _body(heard: Heard, reader: asyncio.StreamReader) -> bytes:
    if heard.headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(heard.headers.get("content-length", 0)))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


@contextlib.asynccontextmanager
async def serving(
    answer: Answering | bytes, *, tls: ssl.SSLContext | None = None, unix: str | None = None
) -> AsyncIterator[Any]:
    """Bytes: the answer to everything."""

    async def always(_heard: Heard, _talk: Talk) -> bytes:
        assert isinstance(answer, bytes)
        return answer

    server = Server(always if isinstance(answer, bytes) else answer)
    if unix is not None:
        listening = await asyncio.start_unix_server(server.serve, unix)
    else:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
        server.port = listening.sockets[0].getsockname()[1]
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        listening.close()
        ending = tuple(server.tasks)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending)
