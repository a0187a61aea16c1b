"""A server of the API and the dashboard beside the other work of a program: of a manager, or of `cluster up`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping

from ...errors import InvalidInput
from ...web import OpenCluster, WebOptions, serving

log = logging.getLogger("mainstay.cluster")


class SideServer:
    """Serves stores and their cluster while its block runs."""

    def __init__(self, options: WebOptions) -> None:
        self.url = ""
        """its address, once it serves"""
        self._options = options

    @contextlib.asynccontextmanager
    async def running(self, urls: Mapping[str, str], cluster: OpenCluster) -> AsyncIterator[None]:
        """Serve these stores, by name, and the cluster of the first one. Raises if it could not start."""
        started = asyncio.Event()

        def ready(url: str, _: object) -> None:
            self.url = url
            started.set()

        async with serving(urls, self._options, ready=ready, cluster=cluster) as server:
            waiting = asyncio.create_task(started.wait())
            await asyncio.wait({waiting, server.running}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if server.running.done():
                await server.running
            yield
            server.stop()


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `[HOST:]PORT`.

    >>> listen_address("8330"), listen_address("[::1]:0"), listen_address("0.0.0.0:80")
    (('127.0.0.1', 8330), ('::1', 0), ('0.0.0.0', 80))
    """
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidInput("serve", f"{text!r} is not an address; write HOST:PORT or PORT, such as 127.0.0.1:8330")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


__all__ = ["SideServer", "listen_address"]
