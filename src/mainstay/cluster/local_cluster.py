"""`mainstay cluster up`: a small real cluster on this machine, as child processes of one command.

A bus on loopback with random credentials, a store, managers and nodes. Whichever of them ends by itself is started
again, as a process manager would do. All of them end with the command, also when it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from ..bundles import installed_digest
from ..bus.nats import parse_servers
from ..errors import InvalidInput, MainstayError, MissingExtra
from ..worker import STOPPED, UNFIT, WorkerOptions, describe_exit
from .address import ClusterAddress
from .local_cluster_file import ClusterFolder, LocalClusterFile, RunningProcess
from .manager_program import ManagerConfig
from .nats_server import LocalNats
from .node_config import NodeConfig

log = logging.getLogger("mainstay.cluster")

_START_S = 30.0
_STOP_S = 45.0
#: before a process that ended is started again; it doubles while the process does not live long
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0
_LONG_LIFE_S = 30.0
_MANAGER = (sys.executable, "-m", "mainstay.cluster.manager_program")
_NODE = (sys.executable, "-m", "mainstay.cluster.node_program")


class ClusterProgress(Protocol):
    """Is called with what happened (started, ended, restarted, failed), and to which process."""

    def __call__(self, event: str, text: str) -> None: ...


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


def _log_progress(event: str, text: str) -> None:
    log.info("%s %s", event, text)


class LocalCluster:
    """A service: `start`, then `stop`. In between it starts again what ends."""

    def __init__(self, options: LocalClusterOptions, *, progress: ClusterProgress = _log_progress) -> None:
        if options.managers < 1:
            raise InvalidInput("managers", "a cluster needs at least one manager")
        self._options = options
        self._progress = progress
        self._folder = ClusterFolder(options.folder)
        self._bus: LocalNats | None = None
        self._children: dict[tuple[str, str], asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def bus(self) -> LocalNats:
        """Its bus, while it runs."""
        assert self._bus is not None
        return self._bus

    @property
    def store(self) -> str:
        """The URL of its store."""
        return self._options.store or f"sqlite:///{(self._options.folder / 'jobs.db').resolve()}"

    @property
    def file(self) -> LocalClusterFile:
        """What other commands read, as it is now."""
        running = [RunningProcess(role="bus", name="nats", pid=self.bus.pid)]
        running += [
            RunningProcess(role=role, name=name, pid=process.pid if process.returncode is None else 0)
            for (role, name), process in self._children.items()
        ]
        return LocalClusterFile(
            cluster=self._options.cluster,
            url=self._address("operator").url,
            node_url=self._address("node").url,
            store=self.store,
            processes=running,
        )

    async def start(self) -> LocalClusterFile:
        """Start everything; returns when each manager answers and each node was started."""
        options = self._options
        _check_installed()
        self._folder.hold()
        bus = self._bus = await LocalNats.start(options.folder)
        self._progress("started", f"bus {bus.version} ({bus.program})")
        self._keep("bus", "nats", bus.begin, bus.wait)
        # one after the other: the first makes the tables of a new store
        for number in range(1, options.managers + 1):
            await self._start_child("manager", f"m{number}", self._start_manager)
        for number in range(1, options.nodes + 1):
            await self._start_child("node", f"n{number}", self._start_node)
        self._write_file()
        return self.file

    def hurry(self) -> None:
        """During `stop`: do not wait for the jobs that still run."""
        for process in self._alive("node"):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Drain the nodes, then stop the managers, then the bus. Safe to call twice."""
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.cancel()
        if keepers:
            await asyncio.wait(keepers)
        for role in ("node", "manager"):
            await self._stop_all(role)
        if self._bus is not None:
            await self._bus.stop()
            self._bus = None
        self._folder.release()

    # kept running -------------------------------------------------------------------------------

    async def _start_child(self, role: str, name: str, start: Callable[[str], Awaitable[None]]) -> None:
        await start(name)
        self._progress("started", f"{role} {name}")
        self._keep(role, name, partial(start, name), partial(self._ended, role, name))

    async def _ended(self, role: str, name: str) -> int:
        return await self._children[role, name].wait()

    def _keep(
        self, role: str, name: str, start: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[int]]
    ) -> None:
        work = self._keep_running(role, name, start, wait)
        self._keepers.append(asyncio.create_task(work, name=f"mainstay keeps {name}"))

    async def _keep_running(
        self, role: str, name: str, start: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[int]]
    ) -> None:
        """Start it again whenever it ends."""
        loop = asyncio.get_running_loop()
        wait_s, begun_s = _FIRST_WAIT_S, loop.time()
        while True:
            code = await wait()
            self._write_file()
            if role == "node" and code in (STOPPED, UNFIT):
                why = "it was drained" if code == STOPPED else "it cannot run its app; see its output above"
                self._progress("ended", f"{role} {name}: {why}")
                return
            if loop.time() - begun_s > _LONG_LIFE_S:
                wait_s = _FIRST_WAIT_S
            self._progress("ended", f"{role} {name} {describe_exit(code)}; again in {wait_s:g} s")
            while True:
                await asyncio.sleep(wait_s)
                wait_s = min(_LONGEST_WAIT_S, wait_s * 2)
                begun_s = loop.time()
                try:
                    await start()
                except (MainstayError, OSError) as error:
                    self._progress("failed", f"{role} {name}: {error}; again in {wait_s:g} s")
                else:
                    break
            self._write_file()
            self._progress("restarted", f"{role} {name}")

    async def _start_manager(self, name: str) -> None:
        config = ManagerConfig(
            url=self._address("manager").url,
            store=self.store,
            name=name,
            state=str(self._options.folder / "managers" / name),
            blobs=f"file://{quote(str((self._options.folder / 'blobs').resolve()))}",
            parent=os.getpid(),
            log_level=self._options.log_level,
        )
        process = await self._spawn("manager", name, _MANAGER, msgspec.json.encode(config), stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                line = await process.stdout.readline()
        except TimeoutError:
            process.kill()
            await process.wait()
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
                cache=str((options.folder / "bundles").resolve()),
                grace_s=options.grace_s,
                output=str(options.folder / "output" / name),
                log_level=options.log_level,
            ),
            incarnation="",
            parent=os.getpid(),
            cores=options.cores,
            digest=await asyncio.to_thread(_digest_of, options.target),
        )
        await self._spawn("node", name, _NODE, msgspec.json.encode(config))

    async def _spawn(
        self, role: str, name: str, command: Sequence[str], config: bytes, **more: Any
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE,
            # Ctrl-C of the terminal is for the command, which stops its processes in order
            start_new_session=True,
            **more,
        )
        self._children[role, name] = process
        assert process.stdin is not None
        process.stdin.write(config)
        process.stdin.close()
        return process

    async def _stop_all(self, role: str) -> None:
        processes = self._alive(role)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_S):
                await asyncio.gather(*(process.wait() for process in processes))
        except TimeoutError:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*(process.wait() for process in processes))

    def _alive(self, role: str) -> list[asyncio.subprocess.Process]:
        return [each for (kind, _), each in self._children.items() if kind == role and each.returncode is None]

    def _address(self, role: str) -> ClusterAddress:
        return ClusterAddress(servers=parse_servers(self.bus.url(role)), cluster=self._options.cluster)

    def _write_file(self) -> None:
        self._folder.write(self.file)


def _check_installed() -> None:
    """Raise `MissingExtra` before anything is started, instead of one error from each process."""
    try:
        import nats  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise MissingExtra("bus", "nats-py is not installed; run: pip install 'mainstay[cluster]'") from None


def _digest_of(target: str) -> str:
    """The digest of the app; empty if it is not found: the node says why."""
    with contextlib.suppress(InvalidInput):
        return installed_digest(target)
    return ""


__all__ = ["ClusterProgress", "LocalCluster", "LocalClusterOptions"]
