"""A target for load tests on nodes: it knows which process has sent each request, and when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

#: how long an answer takes: no user can send more than one request in this time
ANSWER_S = 0.2
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

#: a test whose requests say which process has sent them. Without options it runs until it is cancelled
TEST = """
import os
from mainstay.load import URL, HTTPResponse, Workflow, step


class Shop(Workflow):
    vus = 8
    duration = "10m"

    @step()
    async def browse(self, url: URL = "/shop") -> HTTPResponse:
        return await self.client.http.get(url, params={"pid": str(os.getpid())})
"""


class TargetRequest(NamedTuple):
    """A request that was answered."""

    at_s: float
    """when it arrived"""
    path: str
    pid: int
    """of the generator that has sent it"""
    query: Mapping[str, str]


class LoadTarget:
    """An HTTP server in this process, which answers each request after `ANSWER_S`."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[TargetRequest] = []
        """by the time of their answers"""
        self.under_way = 0
        self.most_under_way = 0
        self.parents: dict[int, list[int]] = {}
        """of each generator: its parent, and so on"""

    def reset(self) -> None:
        self.requests = []
        self.most_under_way = self.under_way
        self.parents = {}

    @property
    def total(self) -> int:
        return len(self.requests)

    def by_pid(self, path: str = "") -> Counter[int]:
        """How many requests each generator has sent: all, or those of a path."""
        return Counter(request.pid for request in self.requests if path in ("", request.path))

    def begins_s(self) -> dict[int, float]:
        """When the first request of each generator arrived."""
        found: dict[int, float] = {}
        for request in self.requests:
            found[request.pid] = min(request.at_s, found.get(request.pid, request.at_s))
        return found

    def latest_s(self, pids: set[int]) -> float:
        """When the last request of these generators arrived."""
        return max(request.at_s for request in self.requests if request.pid in pids)

    def after(self, at_s: float, pids: set[int]) -> int:
        """How many requests of these generators arrived after a time."""
        return sum(request.at_s > at_s and request.pid in pids for request in self.requests)

    def pids_below(self, pid: int) -> set[int]:
        """The generators that this process, or a child of it, has started."""
        return {each for each, parents in self.parents.items() if pid in parents}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await self._answer(head.split(b" ", 2)[1].decode(), writer)
        writer.close()

    async def _answer(self, url: str, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        pid, at_s = int(query["pid"]), time.monotonic()
        if pid not in self.parents:
            self.parents[pid] = parents_of(pid)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(ANSWER_S)
        finally:
            self.under_way -= 1
        writer.write(_ANSWER)
        self.requests.append(TargetRequest(at_s, parts.path, pid, query))


@asynccontextmanager
async def load_target() -> AsyncIterator[LoadTarget]:
    target = LoadTarget()
    server = await asyncio.start_server(target.serve, "127.0.0.1", 0)
    target.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield target
    finally:
        server.close()


def parents_of(pid: int) -> list[int]:
    """The processes above a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            found.append(pid)
    return found
