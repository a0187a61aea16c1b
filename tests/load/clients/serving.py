"""A server that does what it is told with each connection, and is gone when the block is over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(talk: Talk) -> AsyncIterator[str]:
    """Gives its address, "host:port". A connection stays open until the end, unless `talk` closes it."""
    at_work: set[asyncio.Task[None]] = set()
    over = asyncio.Event()

    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        talking = asyncio.ensure_future(talk(reader, writer))
        await over.wait()
        talking.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError, EOFError):
            await talking
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(each, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        over.set()
        while at_work:
            await at_work.pop()
