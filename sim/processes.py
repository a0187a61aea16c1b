"""Engine processes in simulation: the real main program of an engine (`EngineHost`), in virtual time.

Each process is a simulated host: killed, it runs no more code, not even a `finally`. It gets the messages that a real
engine gets, as the same lines of JSON, and writes its marks into a flight recorder that survives it. It has no
children: jobs that would run in a process of their own run on its loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec

from mainstay.errors import MainstayError
from mainstay.testing import SimulatedHost, VirtualLoop
from mainstay.worker import Children, Program, WorkerOptions
from mainstay.worker.engine_main import EngineHost
from mainstay.worker.host_process import LinkWriter
from mainstay.worker.messages import EngineConfig, FromEngine, ToEngine, Unfit, line
from mainstay.worker.recorder import Recorder
from mainstay.worker.solo_turn import SoloLock

#: enough for the concurrency of any simulated engine
_SLOTS = 256
_SUPERVISOR_PID = 100
_UNFIT = 2

#: makes the program that an engine runs: what an engine's process does when it imports `module:app`
LoadProgram = Callable[[EngineConfig], Program]


class SimulatedProcesses:
    """The engine processes of one supervisor, on one simulated machine. A `mainstay.worker.processes.Processes`.

    `state` is the disk of the machine: a folder that outlives its processes. A start takes `start_s`, half of it by
    chance.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        machine: str,
        load: LoadProgram,
        *,
        rng: random.Random,
        state: Path,
        start_s: float = 0.4,
    ) -> None:
        self.pid = _SUPERVISOR_PID
        self.machine = machine
        self.state = state
        self.start_s = start_s
        self.refused = 0
        """how often a start fails from now on, as on a machine that is short of processes"""
        self.all: list[SimulatedProcess] = []
        """every process that was started, in order"""
        self._loop = loop
        self._load = load
        self._rng = rng
        self._solo_holder: SimulatedProcess | None = None

    @property
    def running(self) -> list[SimulatedProcess]:
        """The processes that have not ended."""
        return [process for process in self.all if process.host.alive]

    def spawn(self, config: EngineConfig, receive: Callable[[FromEngine], None]) -> SimulatedProcess:
        if self.refused:
            self.refused -= 1
            raise OSError(11, "Resource temporarily unavailable")
        pid = self.pid + 1 + len(self.all)
        process = SimulatedProcess(self._loop, self, pid, receive)
        self.all.append(process)
        rng = random.Random(self._rng.getrandbits(64))
        process.start(config, self._load, rng=rng, after_s=self.start_s * rng.uniform(0.5, 1.0))
        return process

    def close(self) -> None:
        """Nothing to release."""

    def crash(self) -> None:
        """The supervisor has died, alone or with its machine: its engines die with it, and no process learns of their
        end."""
        for process in self.running:
            process.host.crash()

    def take_solo_turn(self, process: SimulatedProcess) -> bool:
        if self._solo_holder is None or not self._solo_holder.host.alive:
            self._solo_holder = process
        return self._solo_holder is process

    def release_solo_turn(self, process: SimulatedProcess) -> None:
        if self._solo_holder is process:
            self._solo_holder = None


class SimulatedProcess:
    """One engine process: the handle of its supervisor. Made by `SimulatedProcesses.spawn`."""

    def __init__(
        self,
        loop: VirtualLoop,
        processes: SimulatedProcesses,
        pid: int,
        receive: Callable[[FromEngine], None],
    ) -> None:
        self.pid = pid
        self.host: SimulatedHost = loop.host(f"{processes.machine}/{pid}")
        """what runs in it; freeze it for a process that is stopped"""
        self.recorder = Recorder.within_process(_SLOTS)
        self.ended: asyncio.Future[int] = loop.create_future()
        self._loop = loop
        self._processes = processes
        self._receive = receive
        # what comes from the process runs where its supervisor runs: on a host that may be frozen or dead
        self._supervisor = contextvars.copy_context()
        self._inbox = asyncio.StreamReader(loop=loop)

    def start(self, config: EngineConfig, load: LoadProgram, *, rng: random.Random, after_s: float) -> None:
        self.host.start(self._main(config, load, rng, after_s))

    def send(self, message: ToEngine) -> None:
        if self.host.alive:
            self._inbox.feed_data(line(message))

    def kill(self) -> None:
        self.exit(-signal.SIGKILL)

    def exit(self, status: int) -> None:
        """End at once with this status: a code, or minus a signal. In a job of the process itself, `leave` also stops
        the caller."""
        if self.host.alive:
            self.host.crash()
            self._loop.call_soon(self._end, status, context=self._supervisor)

    def close(self) -> None:
        self.recorder.close()

    def hear(self, data: bytes) -> None:
        """The process has written to its link."""
        for text in data.splitlines():
            self._loop.call_soon(self._decode, text, context=self._supervisor)

    async def leave(self, status: int) -> NoReturn:
        """End the process from within, as `os._exit` does."""
        self.exit(status)
        await self._loop.create_future()
        raise AssertionError("a process that has ended runs no code")

    async def _main(self, config: EngineConfig, load: LoadProgram, rng: random.Random, after_s: float) -> None:
        """What the `main` of an engine's process does."""
        await asyncio.sleep(after_s)
        inside = _InsideProcess(self, self._processes, self._inbox)
        try:
            status = await EngineHost(config, load(config), process=inside, rng=rng).run()
        except MainstayError as error:
            self.hear(line(Unfit(str(error))))
            status = _UNFIT
        self.exit(status)

    def _decode(self, text: bytes) -> None:
        message: FromEngine = msgspec.json.decode(text, type=FromEngine)
        self._receive(message)

    def _end(self, status: int) -> None:
        if not self.ended.done():
            self.ended.set_result(status)


class _InsideProcess:
    """The process as its engine sees it. A `mainstay.worker.host_process.HostProcess`."""

    def __init__(self, process: SimulatedProcess, processes: SimulatedProcesses, inbox: asyncio.StreamReader) -> None:
        self.pid = process.pid
        self.host: str | None = processes.machine
        self.state: Path | None = processes.state
        self._process = process
        self._processes = processes
        self._inbox = inbox

    async def connect(self) -> tuple[asyncio.StreamReader, LinkWriter]:
        return self._inbox, _SimulatedLink(self._process)

    def recorder(self) -> Recorder:
        return self._process.recorder

    def solo_turn(self) -> SoloLock | None:
        return _SimulatedTurn(self._process, self._processes)

    def children(self, options: WorkerOptions, *, most: int) -> Children | None:
        del options, most
        return None

    async def leave(self) -> NoReturn:
        await self._process.leave(0)


class _SimulatedLink:
    """The engine's sending end."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process

    def write(self, data: bytes) -> None:
        self._process.hear(data)

    def close(self) -> None:
        """The supervisor learns of the end of the process."""


class _SimulatedTurn:
    """The lock on running a job alone, free again when the process of its holder has ended."""

    def __init__(self, process: SimulatedProcess, processes: SimulatedProcesses) -> None:
        self._process = process
        self._processes = processes

    def take(self) -> bool:
        return self._processes.take_solo_turn(self._process)

    def release(self) -> None:
        self._processes.release_solo_turn(self._process)
