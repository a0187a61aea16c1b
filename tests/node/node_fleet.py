"""Nodes as an operator starts them: a `mainstay worker --node NAME` each, for tests that kill and freeze them."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from pathlib import Path
from typing import Self

import msgspec

from mainstay import App, NodeHandle
from mainstay.model import Job
from mainstay.node.spec import Quorum
from mainstay.stores import Query, RefusedWrite
from tests.chaos.fleet import Fleet, Trace, Worker, kill
from tests.node.node_program import gated
from tests.stopping import stop_between_writes

_LEADS = re.compile(r" leading lead=placement session=(\S+) epoch=(\d+)")
#: most that a test waits for anything; a machine that does nothing else needs seconds
PATIENCE_S = 300.0


class SeenLead(msgspec.Struct, frozen=True):
    """A worker that leads placement, as its log says."""

    node: str
    epoch: int
    at_s: float
    """when it was seen"""


class NodeFleet(Fleet):
    """Nodes of one store, and a client that submits to them."""

    def __init__(self, folder: Path, url: str, **settings: str) -> None:
        super().__init__(folder, url, target="node_program:app", home=Path(__file__).parent, **settings)
        self.nodes: dict[str, Worker] = {}
        self._app = App(url)
        self._gated = gated(self._app)

    async def open(self) -> Self:
        await super().open()
        return self

    async def close(self) -> None:
        for worker in self.workers:
            thaw(worker)
        await self._app.close()
        await super().close()

    def node(self, name: str, *, grace: str = "30s") -> Worker:
        """Start a node; one of the same name may be running."""
        self.nodes[name] = self.worker(grace=grace, arguments=("--node", name))
        return self.nodes[name]

    async def three(self) -> None:
        """n1, n2 and n3, all ready; n1 leads."""
        self.node("n1")
        assert (await self.lead()).node == "n1"
        self.node("n2")
        self.node("n3")
        await self.ready(3)

    async def lead(self, *, epoch: int = 1) -> SeenLead:
        """Wait until a node leads placement in this epoch or a later one."""
        ends_s = time.monotonic() + PATIENCE_S
        while True:
            for name, worker in self.nodes.items():
                for found in _LEADS.finditer(worker.log.read_text()):
                    if int(found[2]) >= epoch:
                        return SeenLead(name, int(found[2]), time.monotonic())
            if time.monotonic() > ends_s:
                raise AssertionError(f"no leader in epoch {epoch} after {PATIENCE_S} s\n{self.told()}")
            await asyncio.sleep(0.01)

    async def submit(self, *, quorum: Quorum = "majority", stragglers: str = "1s", **arguments: str) -> NodeHandle:
        return await self._gated.options(quorum=quorum, stragglers=stragglers).submit(**arguments)

    async def began(self, handle: NodeHandle, *nodes: str) -> None:
        """Wait until the job runs on these nodes, and the store knows it."""
        for node in nodes:
            await self.traced(handle.id, f"begin/{node}")
            while (await self.unit(handle, node)).started_ms is None:
                await asyncio.sleep(0.01)

    async def unit(self, handle: NodeHandle, name: str) -> Job:
        """A unit of the job: `n1`, or `leader`."""
        wanted = "leader" if name == "leader" else f"node/{name}"
        page = await self.control.store.find(Query(parent=handle.id), cursor=None, limit=200)
        [unit] = [unit for unit in page.jobs if unit.unit == wanted]
        return unit

    async def unit_in(self, handle: NodeHandle, name: str, status: str) -> Job:
        """Wait until a unit has a status."""
        ends_s = time.monotonic() + PATIENCE_S
        while (unit := await self.unit(handle, name)).status != status:
            if time.monotonic() > ends_s:
                raise AssertionError(f"{name} is {unit.status}, not {status}\n{await self.story(unit.id)}")
            await asyncio.sleep(0.02)
        return unit

    async def freeze(self, handle: NodeHandle, node: str) -> Trace:
        """Stop all processes of a node. Its engine is at the end of the run of a job that was submitted with
        `freezes=node`."""
        begun = await self.traced(handle.id, f"begin/{node}")
        for pid in (begun.pid, self.nodes[node].pid):
            await stop_between_writes(pid, self.control.store)
        return begun

    async def refused(self, unit: Job) -> RefusedWrite:
        """Wait for the first write about a unit that the store refused and recorded."""
        ends_s = time.monotonic() + PATIENCE_S
        while not (found := await self.control.store.refusals(unit.id)):
            if time.monotonic() > ends_s:
                raise AssertionError(f"no write was refused\n{await self.story(unit.id)}")
            await asyncio.sleep(0.02)
        return found[0]


def thaw(worker: Worker) -> None:
    """Let all processes of a worker go on."""
    for pid in (worker.pid, *worker.everyone):
        kill(pid, signal.SIGCONT)
