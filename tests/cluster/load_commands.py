"""`mainstay load run` as its users start it, and the built-in target."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mainstay.cluster.address import parse_address
from mainstay.cluster.web.side_server import SideServer
from mainstay.cluster.web.sources import watched_cluster
from mainstay.web import WebOptions
from mainstay.web.security.tokens import Tokens
from tests.cluster.local_clusters import RunningCluster

MAINSTAY = (sys.executable, "-m", "mainstay")
COMMAND_TEST = """
from mainstay.load import URL, Feed, HTTPResponse, Workflow, step
from prices import PATH


class Shop(Workflow):
    vus = 4
    duration = "2s"
    think = "10ms"
    data = Feed.csv("users.csv")

    @step()
    async def browse(self, url: URL = PATH) -> HTTPResponse:
        return await self.client.http.get(url, params={"user": self.vu.data["name"]})
"""


class BuiltInTarget:
    """The built-in target, which counts what it gets."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def requests(self) -> int:
        def read() -> int:
            with urllib.request.urlopen(f"{self.url}/stats") as answer:
                return sum(path["completed"] for path in json.load(answer)["paths"].values())

        return await asyncio.to_thread(read)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[BuiltInTarget]:
    """A target, and a folder with a load test, a module that it imports, and its data."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.py").write_text(COMMAND_TEST)
    (folder / "prices.py").write_text('PATH = "/"')
    (folder / "users.csv").write_text("name\nann\nbob\ncat\ndan\n")
    command = [*MAINSTAY, "load", "target", "--port", "0", "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield BuiltInTarget(json.loads(await process.stdout.readline())["url"])
    finally:
        process.terminate()
        await process.wait()


class LoadCommand:
    """`mainstay load run` as its user starts it."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self._folder = folder
        self._printed = ""

    async def prints(self, text: str) -> None:
        """Return when it has printed this."""
        assert self.process.stdout is not None
        while text not in self._printed:
            line = await self.process.stdout.readline()
            assert line, f"it ended, and printed:\n{self._printed}"
            self._printed += line.decode()

    async def ended(self) -> tuple[int, str]:
        """Its exit code, and all that it has printed."""
        out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, f"{self._printed}{out.decode()}\n{err.decode()}"

    def summary(self) -> Any:
        return json.loads((self._folder / "run.json").read_text())


@asynccontextmanager
async def api_of(cluster: RunningCluster, tokens: Tokens) -> AsyncIterator[str]:
    """A server of the cluster, which asks for tokens."""
    address = parse_address(cluster.file.url)
    server = SideServer(WebOptions(port=0, tokens=str(tokens.path)))
    async with server.running({"default": address.store_url("operator")}, lambda: watched_cluster(address)):
        yield server.url


async def load_run(
    folder: Path, cluster: RunningCluster | str, target: BuiltInTarget, *words: str, token: str = ""
) -> LoadCommand:
    place = cluster if isinstance(cluster, str) else cluster.file.url
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAINSTAY_")}
    environ |= {"MAINSTAY_TOKEN": token} if token else {}
    process = await asyncio.create_subprocess_exec(
        *MAINSTAY, "load", "run", "shop.py", "--base-url", target.url, "--cluster", place,
        "--json", "run.json", "--ui", "ci", *words,
        cwd=folder, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    return LoadCommand(process, folder)
