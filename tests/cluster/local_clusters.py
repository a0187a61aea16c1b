"""Real clusters of processes for tests, and short words for what tests ask of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from mainstay.bus import Bus
from mainstay.cluster.address import parse_address
from mainstay.cluster.cluster_service import ClusterClient
from mainstay.cluster.local_cluster import LocalCluster, LocalClusterOptions
from mainstay.cluster.local_cluster_file import LocalClusterFile
from mainstay.cluster.status import ClusterStatus
from mainstay.control import Control
from mainstay.model import Job
from mainstay.stores import JobStore, open_store

T = TypeVar("T")
PATIENCE_S = 60.0
TARGET = "tests.cluster.cluster_program:app"


class RunningCluster:
    """A cluster, its operator and its store."""

    def __init__(
        self, folder: Path, cluster: LocalCluster, bus: Bus, store: JobStore, joined: contextlib.AsyncExitStack
    ) -> None:
        self.folder = folder
        self.cluster = cluster
        self.bus = bus
        self.store = store
        self.control = Control(store)
        self.client = ClusterClient(bus, name="local", cluster=cluster.file.cluster)
        self._joined = joined

    @property
    def file(self) -> LocalClusterFile:
        """As other commands read it."""
        return self.cluster.file

    def pid(self, name: str) -> int:
        return next(process.pid for process in self.file.processes if process.name == name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    async def join(self, name: str, *, url: str = "", **options: str) -> asyncio.subprocess.Process:
        """Have a node join as a user would, through another URL if one is given; it is stopped at the end."""
        more = [word for option, value in options.items() for word in (f"--{option.replace('_', '-')}", value)]
        command = [sys.executable, "-m", "mainstay", "node", "join", url or self.file.node_url, TARGET]
        process = await asyncio.create_subprocess_exec(
            *command, "--name", name, "--grace", "2s", "--log-level", "error", *more, start_new_session=True
        )
        self._joined.push_async_callback(_end, process)
        return process

    async def submit(self, task: str, *, queue: str = "default", **arguments: Any) -> str:
        return (await self.control.jobs.submit(task, arguments, queue=queue)).id

    async def rows(self, ids: list[str]) -> list[Job]:
        return [row for row in await self.store.get(ids) if row is not None]

    async def settled(self, ids: list[str]) -> list[Job]:
        """The rows when all of them are settled."""

        async def look() -> list[Job] | None:
            rows = await self.rows(ids)
            return rows if all(row.settled_ms is not None for row in rows) else None

        return await until(look)

    async def running(self, ids: list[str]) -> list[Job]:
        """The rows when all of them have begun."""

        async def look() -> list[Job] | None:
            rows = await self.rows(ids)
            return rows if all(row.started_ms is not None for row in rows) else None

        return await until(look)

    async def status(self, fits: Callable[[ClusterStatus], bool]) -> ClusterStatus:
        """The first status that fits."""

        async def look() -> ClusterStatus | None:
            found = await self.client.status()
            return found if fits(found) else None

        return await until(look)

    async def taken_back(self, ids: list[str]) -> list[Job]:
        """The rows when each of them has begun again, under another token."""

        async def look() -> list[Job] | None:
            rows = await self.rows(ids)
            return rows if all(row.token > 1 and row.status == "running" for row in rows) else None

        return await until(look)

    async def ready(self, nodes: int = 1) -> ClusterStatus:
        """The status when this number of nodes works."""
        return await self.status(
            lambda found: sum(node.state == "active" and len(node.beat.sessions) > 1 for node in found.nodes) >= nodes
        )


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """What `look` returns first; a process of a cluster cannot be waited for in another way."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                found = await look()
            except Exception:  # noqa: BLE001 - the bus or its managers may be away for a moment
                found = None
            if found is not None:
                return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running_cluster(folder: Path, **options: Any) -> AsyncIterator[RunningCluster]:
    values = {"target": TARGET, "managers": 2, "nodes": 1, "grace_s": 5.0, **options}
    cluster = LocalCluster(LocalClusterOptions(folder=folder, **values))
    try:
        file = await cluster.start()
        address = parse_address(file.url)
        bus = await address.connect("operator", "local", timeout_s=10)
        store = await open_store(file.store)
        try:
            async with contextlib.AsyncExitStack() as joined:
                yield RunningCluster(folder, cluster, bus, store, joined)
        finally:
            await store.close()
            await bus.close()
    finally:
        await cluster.stop()


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, and SIGKILL for one that is cut off and does not end."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(20):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
