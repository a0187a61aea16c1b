"""Servers that listen: in a thread of this process, and as a process that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from mainstay.control import Control
from mainstay.web.options import WebOptions
from mainstay.web.security.middleware import wrapped
from mainstay.web.server import WebServer, bound, make_server, url_of
from mainstay.web.site import make_site
from mainstay.web.stores import ServedStores

T = TypeVar("T")


class Here:
    """A server in a thread, on a store in memory."""

    def __init__(self, options: WebOptions) -> None:
        self.url = ""
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._stores: ServedStores | None = None
        self._server: WebServer | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    @property
    def control(self) -> Control:
        assert self._stores is not None
        return self._stores.first.control

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something where the server runs."""
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(30)

    def stop(self) -> None:
        assert self._server is not None
        self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(30)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        options = self._options
        with bound(options) as opened:
            async with await ServedStores.open({"main": "memory:"}) as self._stores:
                app = wrapped(make_site(self._stores, options, tokens=None), options)
                self.url = url_of(options, opened)
                self._server = make_server(app, options, started=self._ready.set)
                await self._server.serve(sockets=[opened])


@contextlib.contextmanager
def served(**options: Any) -> Iterator[Here]:
    here = Here(WebOptions(**{"port": 0, "rate": 1e6, **options}))
    here.start()
    try:
        yield here
    finally:
        here.stop()


class Process:
    """`mainstay serve` on a store, to be killed and started again at the same port."""

    def __init__(self, folder: Path, store: str) -> None:
        self.store = store
        self.url = ""
        self._log = folder / "serve.log"
        self._port = "0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        words = ["serve", "--port", self._port, "--json", "--store", self.store, "--rate", "1000000"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mainstay", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=dict(os.environ),
            )
        line = cast("IO[str]", self._process.stdout).readline()
        assert line, self._log.read_text()
        self.url = json.loads(line)["url"]
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            cast("IO[str]", self._process.stdout).close()
            self._process = None
