"""The machines of a simulated cluster: managers, and nodes with their parent, worker and engine processes.

All of them run the real code: `Manager`, `NodeParent`, `NodeHeart`, `Supervisor` and the main program of an engine. The
bus, the processes and the store's connections are simulated.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mainstay import App
from mainstay.cluster.manager import Manager, ManagerOptions
from mainstay.cluster.manager_load import LoadSample
from mainstay.cluster.node_config import NodeConfig
from mainstay.cluster.node_heart import NodeHeart
from mainstay.cluster.node_parent import NodeParent
from mainstay.cluster.node_worker import run_supervised
from mainstay.control import Control
from mainstay.errors import StoreError
from mainstay.stores import JobStore
from mainstay.task.connection import StoreConnection
from mainstay.testing import SimulatedHost
from mainstay.worker import Program, Supervisor, WorkerOptions
from mainstay.worker.messages import EngineConfig

from .processes import SimulatedProcesses
from .runs import Violation

if TYPE_CHECKING:
    from .cluster import ClusterWorld

CLUSTER = "sim"
#: the address of the simulated bus: nothing connects to it
ADDRESS = f"nats://127.0.0.1:4222/{CLUSTER}"
STORE_URL = "remote+nats://127.0.0.1:4222"
GRACE_S = 10.0
ENGINES = 1
_WORKER_PID = 50


class ManagerMachine:
    """A machine with a manager, which is started again when it cannot start."""

    def __init__(self, world: ClusterWorld, name: str, number: int, *, version: str) -> None:
        self.name = name
        self.host: SimulatedHost = world.machine(name)
        self.manager: Manager | None = None
        self._world = world
        self._number = number
        self._version = version
        self._stopping = asyncio.Event()
        self.running = self.host.start(self._run())

    async def stop(self) -> None:
        """What SIGTERM does."""
        self._stopping.set()
        await self.running

    async def _run(self) -> None:
        world = self._world
        store = world.link(self.name)
        while True:
            world.starts += 1
            bus = world.client(f"manager.{self.name}", self.name)
            manager = self.manager = Manager(
                store,
                bus,
                ManagerOptions(name=self.name, cluster=CLUSTER),
                settings=world.app.settings,
                liveness=world.liveness,
                rng=world.rng(f"manager {self.name} {self._number} {world.starts}"),
                host=self.name,
                pid=self._number,
                version=self._version,
                # what a process uses in virtual time says nothing
                sample_load=lambda late_s: LoadSample(0.0, 0.0, late_s),
            )
            world.prepare_manager(manager)
            try:
                await manager.start()
                await self._stopping.wait()
            except StoreError:
                await asyncio.sleep(1)
            finally:
                await manager.stop()
                await bus.close()
            if self._stopping.is_set():
                return


class WorkerOfNode:
    """The worker process of a node, as its parent sees it: a `WorkerProcess`."""

    def __init__(self, machine: NodeMachine, config: NodeConfig) -> None:
        world = machine.world
        world.starts += 1
        number = world.starts
        self.host = world.loop.host(f"{machine.name}/worker")
        self._began_s = world.loop.true_s
        self.config = config
        self.returncode: int | None = None
        self._machine = machine
        self._ended: asyncio.Future[int] = world.loop.create_future()
        self._parent = contextvars.copy_context()
        self._engines = 0
        self.heart: NodeHeart | None = None
        self._rng = world.rng(f"worker {machine.name} {number}")
        self.processes = SimulatedProcesses(
            world.loop, machine.name, self._load, rng=world.rng(f"processes {number}"), state=machine.disk
        )
        self.supervisor = Supervisor(
            msgspec.structs.replace(config.options, cores=config.cores),
            processes=self.processes,
            connect=self._connect,
            state=machine.disk,
            rng=world.rng(f"supervisor {number}"),
        )
        self.host.start(self._run())

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, signal: int) -> None:
        del signal
        if self.host.alive:
            self._machine.world.loop.call_soon(self.supervisor.stop, context=self._context)

    def kill(self) -> None:
        """SIGKILL: its engines die with it, and its parent sees the end."""
        self.crash()
        self._machine.world.loop.call_soon(self._end, -signal.SIGKILL, context=self._parent)

    def crash(self) -> None:
        if self.host.alive:
            self.host.crash()
        self.processes.crash()

    @property
    def is_isolated(self) -> bool:
        """Whether it has stopped its work because no manager answers."""
        return self.heart is None or self.heart.is_isolated

    @property
    def is_unheard(self) -> bool:
        """Whether it has started so lately that it is not isolated, although no manager answers."""
        is_young = self._machine.world.loop.true_s - self._began_s < self._machine.world.liveness.isolation_s
        return is_young and (self.heart is None or not self.heart._answered)  # noqa: SLF001 - the world sees everything

    @property
    def hosts(self) -> list[SimulatedHost]:
        """This process and its engines, if they live."""
        return [host for host in (self.host, *(each.host for each in self.processes.running)) if host.alive]

    async def _run(self) -> None:
        self._context = contextvars.copy_context()
        machine, world = self._machine, self._machine.world
        bus = world.client(f"node.{machine.name}", machine.name)
        heart = self.heart = NodeHeart(
            bus,
            self.config,
            self.supervisor,
            settings=world.liveness,
            load=lambda: (0.1, 0.1),
            host=machine.name,
            pid=_WORKER_PID,
            version=machine.version,
        )
        code = await run_supervised(self.supervisor, heart, bus, self.config)
        await bus.close()
        world.loop.call_soon(self._end, code, context=self._parent)

    def _end(self, code: int) -> None:
        self.returncode = code
        if not self._ended.done():
            self._ended.set_result(code)

    async def _connect(self, url: str) -> JobStore:
        if url != STORE_URL:
            raise Violation(f"an engine named the store {url}")
        return await self._machine.world.remote("node", self._machine.name, url=url, version=self._machine.version)

    def _load(self, config: EngineConfig) -> Program:
        """An engine's process imports the program and opens its own connection."""
        self._engines += 1
        rng = self._machine.world.rng(f"engine {self._rng.random()}")
        app = App(STORE_URL, rng=rng, retries=3, crash_budget=3)
        app.use_worker(config.options)
        self._machine.world.declare(app)

        async def open_control() -> Control:
            return Control(await self._connect(STORE_URL), settings=app.settings, rng=rng)

        app.client.connection = StoreConnection(open_control)
        return app


class NodeMachine:
    """A machine with a node: the parent process, and its worker."""

    def __init__(self, world: ClusterWorld, name: str, number: int, disk: Path, *, version: str) -> None:
        self.world = world
        self.name = name
        self.disk = disk
        self.version = version
        self.host: SimulatedHost = world.machine(name)
        self.worker: WorkerOfNode | None = None
        options = WorkerOptions(
            target="sim:app",
            name=name,
            node=name,
            labels=world.labels_of(name),
            joined=True,
            processes=ENGINES,
            concurrency=3,
            grace_s=GRACE_S,
        )
        self.parent = NodeParent(
            NodeConfig(url=ADDRESS, options=options, incarnation="", parent=0, cores=world.cores),
            start=self._start_worker,
            connect=self._connect,
            rng=world.rng(f"parent {name} {number}"),
            pid=number,
        )
        self.running = self.host.start(self.parent.run())

    @property
    def hosts(self) -> list[SimulatedHost]:
        """All its processes that live."""
        worker = [] if self.worker is None else self.worker.hosts
        return [host for host in (self.host, *worker) if host.alive]

    def crash(self) -> None:
        """The machine loses its power."""
        if self.worker is not None:
            self.worker.crash()
        if self.host.alive:
            self.host.crash()

    async def stop(self) -> int:
        """What SIGTERM does: the worker drains, then the parent ends; its exit code."""
        context = contextvars.copy_context()
        self.world.loop.call_soon(self.parent.stop, signal.SIGTERM, context=context)
        return await asyncio.shield(self.running)

    async def _connect(self) -> object:
        return self.world.client(f"node.{self.name}", self.name)

    async def _start_worker(self, config: NodeConfig) -> WorkerOfNode:
        self.worker = WorkerOfNode(self, config)
        return self.worker


__all__ = ["ADDRESS", "CLUSTER", "STORE_URL", "ManagerMachine", "NodeMachine", "WorkerOfNode"]
