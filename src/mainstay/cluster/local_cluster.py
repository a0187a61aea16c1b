"""`mainstay cluster up`: a small real cluster on this machine, as child processes of one command.

A bus on loopback with random credentials, a store, managers and nodes. All of them end with the command, also when it
is killed. What other commands need to find the cluster is in one file that only its user can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InvalidInput, MainstayError
from ..worker import WorkerOptions, describe_exit
from .address import ClusterAddress
from .manager_program import ManagerConfig
from .nats_server import LocalNats
from .node_worker import NodeConfig

log = logging.getLogger("mainstay.cluster")

FILE = "cluster.json"
_START_S = 30.0
_STOP_S = 45.0
_MANAGER = (sys.executable, "-m", "mainstay.cluster.manager_program")
_NODE = (sys.executable, "-m", "mainstay.cluster.node_program")


class RunningProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a local cluster."""

    role: str
    """bus, manager or node"""
    name: str
    pid: int


class LocalClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """What other commands read to find the cluster. It contains a password."""

    cluster: str
    url: str
    """for operators"""
    node_url: str
    """for nodes that join on this machine"""
    store: str
    processes: list[RunningProcess]


class LocalClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `cluster up` starts."""

    folder: Path
    target: str
    managers: int = 3
    nodes: int = 1
    store: str = ""
    cluster: str = "local"
    cores: int = 0
    processes: int = 1
    concurrency: int | None = None
    grace_s: float = 10.0
    log_level: str = "warning"


class LocalCluster:
    """A service: `start`, `wait`, `stop`."""

    def __init__(self, options: LocalClusterOptions) -> None:
        if options.managers < 1:
            raise InvalidInput("managers", "a cluster needs at least one manager")
        self._options = options
        self._bus: LocalNats | None = None
        self._children: dict[tuple[str, str], asyncio.subprocess.Process] = {}
        self._ended = asyncio.Event()
        self._stopping = False
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def path(self) -> Path:
        return self._options.folder / FILE

    @property
    def bus(self) -> LocalNats:
        """Its bus, while it runs."""
        assert self._bus is not None
        return self._bus

    @property
    def store(self) -> str:
        """The URL of its store."""
        return self._options.store or f"sqlite:///{(self._options.folder / 'jobs.db').resolve()}"

    async def start(self, progress: Callable[[str], None] = lambda _: None) -> LocalClusterFile:
        """Start everything; returns when each manager answers and each node was started."""
        options = self._options
        self._check_free()
        options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._bus = await LocalNats.start(options.folder)
        progress(f"bus {self._bus.version} ({self._bus.program})")
        # one after the other: the first makes the tables of a new store
        for number in range(1, options.managers + 1):
            await self._start_manager(f"m{number}")
            progress(f"manager m{number}")
        for number in range(1, options.nodes + 1):
            await self._start_node(f"n{number}")
            progress(f"node n{number}")
        return self._write_file()

    async def wait(self) -> None:
        """Return when a manager or the bus has ended by itself."""
        await self._ended.wait()

    async def stop(self) -> None:
        """Drain the nodes, then stop the managers, then the bus. Safe to call twice."""
        self._stopping = True
        for role in ("node", "manager"):
            await self._stop_all(role)
        for watcher in self._watchers:
            watcher.cancel()
        if self._bus is not None:
            await self._bus.stop()
            self._bus = None
        self.path.unlink(missing_ok=True)

    # within -------------------------------------------------------------------------------------

    def _check_free(self) -> None:
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            found = read_cluster_file(self._options.folder)
            if any(_is_alive(process.pid) for process in found.processes):
                rule = f"a cluster is running already in {self._options.folder}; stop it, or choose another --folder"
                raise InvalidInput("folder", rule)

    async def _start_manager(self, name: str) -> None:
        assert self._bus is not None
        config = ManagerConfig(
            url=self._address("manager").url,
            store=self.store,
            name=name,
            state=str(self._options.folder / "managers" / name),
            parent=os.getpid(),
            presence=self._bus.system_url,
            log_level=self._options.log_level,
        )
        process = await self._spawn("manager", name, _MANAGER, msgspec.json.encode(config), stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                line = await process.stdout.readline()
        except TimeoutError:
            raise MainstayError(f"manager {name} did not start within {_START_S:g} s; see its output above") from None
        if not line:
            code = await process.wait()
            raise MainstayError(f"manager {name} {describe_exit(code)}; see its output above")

    async def _start_node(self, name: str) -> None:
        options = self._options
        config = NodeConfig(
            url=self._address("node").url,
            options=WorkerOptions(
                target=options.target,
                name=name,
                node=name,
                joined=True,
                processes=options.processes,
                concurrency=options.concurrency,
                grace_s=options.grace_s,
                output=str(options.folder / "output" / name),
                log_level=options.log_level,
            ),
            incarnation="",
            parent=os.getpid(),
            cores=options.cores,
        )
        await self._spawn("node", name, _NODE, msgspec.json.encode(config))

    async def _spawn(
        self, role: str, name: str, command: tuple[str, ...], config: bytes, **more: Any
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE,
            # Ctrl-C of the terminal is for the command, which stops its processes in order
            start_new_session=True,
            **more,
        )
        assert process.stdin is not None
        process.stdin.write(config)
        process.stdin.close()
        self._children[role, name] = process
        self._watchers.append(asyncio.create_task(self._watch(role, name, process)))
        return process

    async def _watch(self, role: str, name: str, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not self._stopping:
            log.warning("%s %s ended: it %s", role, name, describe_exit(code))
            if not any(each.returncode is None for (kind, _), each in self._children.items() if kind == "manager"):
                self._ended.set()

    async def _stop_all(self, role: str) -> None:
        processes = [each for (kind, _), each in self._children.items() if kind == role and each.returncode is None]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        waits: list[Awaitable[int]] = [process.wait() for process in processes]
        try:
            async with asyncio.timeout(_STOP_S):
                await asyncio.gather(*waits)
        except TimeoutError:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*(process.wait() for process in processes))

    def _address(self, role: str) -> ClusterAddress:
        assert self._bus is not None
        return ClusterAddress(server=self._bus.url(role), cluster=self._options.cluster)

    def _write_file(self) -> LocalClusterFile:
        assert self._bus is not None
        running = [RunningProcess(role="bus", name="nats", pid=self._bus.pid)]
        running += [
            RunningProcess(role=role, name=name, pid=process.pid) for (role, name), process in self._children.items()
        ]
        made = LocalClusterFile(
            cluster=self._options.cluster,
            url=self._address("operator").url,
            node_url=self._address("node").url,
            store=self.store,
            processes=running,
        )
        temporary = self.path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.encode(made))
        temporary.replace(self.path)
        return made


def read_cluster_file(folder: Path) -> LocalClusterFile:
    """The running cluster of a folder; raises `FileNotFoundError` if there is none."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=LocalClusterFile)


def kill_process(folder: Path, name: str) -> RunningProcess:
    """Kill one process of a local cluster without warning, to see what happens."""
    try:
        found = read_cluster_file(folder)
    except FileNotFoundError:
        raise InvalidInput("folder", f"no cluster runs in {folder}; start one: mainstay cluster up") from None
    for process in found.processes:
        if process.name == name:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return process
    known = ", ".join(process.name for process in found.processes)
    raise InvalidInput("name", f"{name!r} is not a process of this cluster (its processes: {known})")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


__all__ = [
    "LocalCluster",
    "LocalClusterFile",
    "LocalClusterOptions",
    "RunningProcess",
    "kill_process",
    "read_cluster_file",
]
