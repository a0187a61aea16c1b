"""The world of supervised workers: as `workers`, but each worker is a real `Supervisor` with two engine processes.

The supervisor beats, sweeps, reaps and replaces; its engines run the real main program of an engine, and compete for
the lead with their duties. Of the crashes, half end one engine process, the others the whole machine; of the freezes,
half stop one engine process.

What must hold, beyond what `workers` checks: a drain in the end leaves no process and no session, and the supervisors
return 0.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mainstay import App
from mainstay.control import Control
from mainstay.model import Leadership
from mainstay.stores import JobStore, StoreProxy
from mainstay.task.connection import StoreConnection
from mainstay.testing import SimulatedHost, VirtualLoop
from mainstay.worker import STOPPED, Program, Supervisor, WorkerOptions
from mainstay.worker.messages import EngineConfig

from .faults import Fault
from .processes import SimulatedProcesses
from .runs import Violation
from .workers import WorkersWorld

ENGINES = 2
GRACE_S = 20.0
#: a store URL that the supervisor takes for one that processes can share
STORE_URL = "sim://store"


class SupervisedWorld(WorkersWorld):
    """Three machines with a worker each, two clients, one store."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        super().__init__(loop, seed)
        self.machines: dict[str, _Machine] = {}
        self._disks: Path

    async def run(self, faults: Sequence[Fault]) -> None:
        with tempfile.TemporaryDirectory(prefix="mainstay-sim-") as folder:
            self._disks = Path(folder)
            await super().run(faults)
            await self._drain()

    def start_server(self, name: str) -> None:
        self.started += 1
        machine = self.machines[name] = _Machine(self, self.loop, name, self.started, self._disks / name)
        self.hosts[name] = machine.host

    async def _crash(self, fault: Fault) -> None:
        if fault.host in self.clients:
            return
        machine = self.machines[fault.host]
        drawn = self.rng(f"crash {fault}")
        if drawn.random() < 0.5 and machine.processes.running:
            process = drawn.choice(machine.processes.running)
            self.note(f"kill {process.host.name}")
            process.kill()
            return
        machine.processes.crash()
        await super()._crash(fault)

    async def _freeze(self, fault: Fault) -> None:
        if fault.host in self.clients:
            await super()._freeze(fault)
            return
        machine = self.machines[fault.host]
        drawn = self.rng(f"freeze {fault}")
        engines = [process.host for process in machine.processes.running]
        frozen = [drawn.choice(engines)] if drawn.random() < 0.5 and engines else [machine.host, *engines]
        await _freeze([host for host in frozen if host.alive and not host.frozen], fault.for_s)

    async def _drain(self) -> None:
        """Stop all workers, and look for what they leave."""
        for name in self.servers:
            machine = self.machines[name]
            machine.supervisor.stop()
            code = await machine.running
            if code != STOPPED:
                raise Violation(f"the supervisor of {name} returned {code}")
            if machine.processes.running:
                raise Violation(f"{machine.processes.running} outlive the supervisor of {name}")
        if left := [session.id for session in await self.store.sessions()]:
            raise Violation(f"sessions without a worker: {left}")


class _Machine:
    """A machine with one worker."""

    def __init__(self, world: WorkersWorld, loop: VirtualLoop, name: str, number: int, disk: Path) -> None:
        self._world = world
        self._name = name
        self._link = world.link(name)
        self._connections = 0
        self._number = number
        self.host = loop.host(name)
        self.processes = SimulatedProcesses(
            loop, name, self._load, rng=world.rng(f"processes {name} {number}"), state=disk
        )
        self.supervisor = Supervisor(
            WorkerOptions(target="sim:app", name=name, processes=ENGINES, concurrency=2, grace_s=GRACE_S),
            processes=self.processes,
            connect=self._connect,
            state=disk,
            rng=world.rng(f"supervisor {name} {number}"),
        )
        self.running = self.host.start(self.supervisor.run())

    async def _connect(self, url: str) -> JobStore:
        if url != STORE_URL:
            raise Violation(f"an engine named the store {url}")
        return MachineConnection(self._link, self._world)

    def _load(self, _config: EngineConfig) -> Program:
        """An engine's process imports the program and opens its own connection."""
        self._connections += 1
        rng = self._world.rng(f"engine {self._name} {self._number} {self._connections}")
        app = App(STORE_URL, rng=rng, retries=3, crash_budget=3)
        self._world.declare(app)

        async def open_control() -> Control:
            return Control(await self._connect(STORE_URL), settings=app.settings, rng=rng)

        app.client.connection = StoreConnection(open_control)
        return app


class MachineConnection(StoreProxy):
    """A process's connection to the shared store: to close it is not to close the store."""

    def __init__(self, store: JobStore, world: WorkersWorld) -> None:
        super().__init__(store)
        self._world = world

    async def lead(self, name: str, session: str, lease_s: float) -> Leadership:
        lead = await self._store.lead(name, session, lease_s)
        if name == "leader":
            self._world.led(lead)
        return lead

    async def close(self) -> None:
        """The store stays open for the others."""


async def _freeze(hosts: Sequence[SimulatedHost], for_s: float) -> None:
    for host in hosts:
        host.freeze()
    await asyncio.sleep(for_s)
    for host in hosts:
        if host.alive:
            host.thaw()
