"""A simulated cluster for scripts instead of clients and chance."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from mainstay.control import Control
from mainstay.errors import NotLeader
from mainstay.model import Job, Leadership
from mainstay.stores import AnyChange, ChangeResult
from mainstay.stores.memory import MemoryStore
from mainstay.testing import VirtualLoop, run_virtual
from sim.cluster import ClusterWorld

NOW = "1.4.0"


class RefusingStore(MemoryStore):
    """Keeps the refusals of writes of earlier leaders."""

    refused: list[NotLeader]

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        try:
            return await super().apply(changes, lead=lead, together=together)
        except NotLeader as refusal:
            self.refused.append(refusal)
            raise


class ClusterScene(ClusterWorld):
    """Three managers and three nodes, and a script instead of clients and chance."""

    def __init__(self, loop: VirtualLoop, folder: Path, seed: int) -> None:
        super().__init__(loop, seed)
        self.store: RefusingStore = RefusingStore(self.clock)
        self.store.refused = []
        self.store.observer = self._check_writes
        self.version = NOW
        self._delay_s = 0.01
        self._disks = folder
        self.control: Control

    async def begin(self) -> None:
        for name in self.servers:
            self.start_server(name)
        await self.until(lambda: not self.disagreement())
        self.control = Control(await self.remote("operator", "c1"), settings=self.app.settings, rng=self.rng("script"))

    def leader(self) -> str:
        """The manager that leads the placement."""
        return next((name for name in self.managers if self.epoch_led_by(name) is not None), "")

    def epoch(self) -> int | None:
        return self.epoch_led_by(self.leader())

    def alarms(self) -> list[str]:
        manager = self.manager_machines[self.leader()].manager
        assert manager is not None
        return list(manager.members.alarms().values())

    def state_of(self, node: str) -> str:
        """As the leader sees it."""
        manager = self.manager_machines[self.leader()].manager
        assert manager is not None
        return next((each.state for each in manager.members.nodes() if each.name == node), "")

    async def submit(self, seconds: float, *, task: Any = None, **options: Any) -> str:
        call = (task or self.work).options(**options).job(seconds, 0)
        return (await self.control.jobs.submit_request(call)).id

    def row(self, job_id: str) -> Job:
        return self.store._rows.jobs[job_id]

    def node_of(self, job_id: str) -> str:
        """Where its claim is."""
        return (self.row(job_id).session or "").partition(".")[0]

    async def run_on(self, node: str, seconds: float, *, task: Any = None) -> str:
        """Submit jobs until one runs on this node."""
        while True:
            job_id = await self.submit(seconds, task=task)
            await self.until(lambda job_id=job_id: self.places.of(job_id))
            if self.node_of(job_id) == node:
                return job_id

    async def until(self, holds: Callable[[], object], *, within_s: float = 200.0) -> float:
        """Wait until something holds; returns after how many seconds it did."""
        began_s = self.loop.time()
        while not holds():
            assert self.loop.time() - began_s < within_s, f"not within {within_s} s"
            await asyncio.sleep(0.2)
        return self.loop.time() - began_s

    async def settled(self, *ids: str) -> list[Job]:
        await self.until(lambda: all(self.row(each).settled_ms is not None for each in ids))
        return [self.row(each) for each in ids]

    @asynccontextmanager
    async def fault(self, kind: str, host: str) -> AsyncIterator[None]:
        """A fault of the bus for the duration of a block."""
        pairs = self.weather.pairs(kind, host)
        self.weather.cut(pairs)
        try:
            yield
        finally:
            self.weather.join(pairs)


AnyScene = TypeVar("AnyScene", bound=ClusterScene)


def play_in(kind: type[AnyScene], script: Callable[[AnyScene], Awaitable[None]], *, seed: int = 1) -> None:
    """Run a script in a cluster that works. Nothing may have been broken in the end."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with tempfile.TemporaryDirectory() as folder:
            scene = kind(loop, Path(folder), seed)
            looking = asyncio.create_task(scene._look())
            await scene.begin()
            await script(scene)
            looking.cancel()
            assert not scene.broken, scene.broken[:2]

    run_virtual(main(), seed=seed)
