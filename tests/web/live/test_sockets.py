"""Streams over real sockets: clients that vanish are noticed, and a server that stops ends what it streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from mainstay.web.options import WebOptions
from mainstay.web.security.limits import ConnectionLimits
from mainstay.web.security.middleware import wrapped
from mainstay.web.server import bound, make_server
from mainstay.web.services import WebServices
from mainstay.web.site import make_site
from mainstay.web.stores import ServedStores


@contextlib.asynccontextmanager
async def listened_to(limits: ConnectionLimits | None = None) -> AsyncIterator[tuple[WebServices, Any, int]]:
    options = WebOptions(port=0, rate=1e6, snapshot_s=0.01)
    async with await ServedStores.open({"main": "memory:"}) as stores:
        app = make_site(stores, options, tokens=None)
        ready = asyncio.Event()
        server = make_server(wrapped(app, options, limits), options, started=ready.set)
        with bound(options) as opened:
            running = asyncio.create_task(server.serve(sockets=[opened]))
            await ready.wait()
            try:
                yield app.state.site, server, opened.getsockname()[1]
            finally:
                server.stop()
                await running


async def connected(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    await reader.readuntil(b"event: ")
    return reader, writer


async def until(so: Any) -> None:
    async with asyncio.timeout(60):
        while not so():
            await asyncio.sleep(0.005)


async def test_clients_that_vanish_leave_nothing_behind() -> None:
    async with listened_to() as (site, _, port):
        made = await site.stores.first.control.jobs.submit("send")
        paths = ["/api/v1/stream", f"/api/v1/jobs/{made.id}/stream", "/api/v1/jobs/stream"]
        clients = [await connected(port, path) for path in paths * 10]
        hub = site.hub
        assert (hub.subscribers("main"), len(hub.jobs("main")), len(hub.lists("main"))) == (10, 1, 1)
        for _, writer in clients:
            writer.transport.abort()
        await until(lambda: (hub.subscribers("main"), len(hub.jobs("main")), len(hub.lists("main"))) == (0, 0, 0))
        await until(lambda: site.requests.open == 0)


async def test_a_client_that_reads_nothing_is_dropped_and_holds_up_nobody() -> None:
    async with listened_to(ConnectionLimits(unread_s=0.05)) as (site, _, port):
        control, hub = site.stores.first.control, site.hub
        for n in range(300):
            # so that what is sent does not fit into what the network keeps for it
            await control.jobs.submit("send", queue=f"queue-{n:03}-{'x' * 60}")
        deaf = await connected(port, "/api/v1/stream")
        reader, writer = await connected(port, "/api/v1/stream")

        async def read_on() -> None:
            while True:
                await reader.readuntil(b"event: ")

        reading = asyncio.create_task(read_on())
        await until(lambda: hub.subscribers("main") == 1)
        assert not reading.done()
        reading.cancel()
        await asyncio.wait({reading})
        for each in (deaf[1], writer):
            each.transport.abort()


async def test_a_server_that_stops_ends_its_streams_in_good_order() -> None:
    async with listened_to() as (site, server, port):
        reader, writer = await connected(port, "/api/v1/stream")
        server.stop()
        async with asyncio.timeout(60):
            rest = await reader.read()
        assert rest.endswith(b"0\r\n\r\n")
        assert site.hub.subscribers("main") == 0
        writer.close()
