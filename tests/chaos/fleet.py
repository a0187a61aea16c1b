"""Workers as an operator starts them, for tests that kill them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec
import pytest

from mainstay.control import Control
from mainstay.model import Job, Settings
from mainstay.stores import open_store

HERE = Path(__file__).parent
TARGET = "chaos_tasks:app"
#: for tests whose claim is about the store as well as about the worker
on_every_store = pytest.mark.parametrize("fleet", ["sqlite", "postgres", "redis"], indirect=True)
#: where a death must be known by a free lock or a closed connection: a lease of minutes would be noticed
on_every_store_with_a_long_lease = pytest.mark.parametrize(
    "fleet", ["sqlite long", "postgres long", "redis long"], indirect=True, ids=["sqlite", "postgres", "redis"]
)
#: most that this takes. On a machine that does nothing else: one or two seconds with a free lock; five with a
#: connection that has to stay away for two seconds, and two sweeps
KNOWN_DEAD_S = 60.0


class Trace(msgspec.Struct, frozen=True):
    """One line that a job left."""

    at: float
    """on the steady clock that all processes of the machine share"""
    what: str
    job_id: str
    token: int
    pid: int


class Worker:
    """One `mainstay worker`: a supervisor, its engines and their children."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        processes: int,
        concurrency: int,
        grace: str,
        environment: Mapping[str, str],
        arguments: Sequence[str] = (),
    ) -> None:
        command = [sys.executable, "-m", "mainstay", "worker", fleet.target, "--processes", str(processes)]
        command += ["--concurrency", str(concurrency), "--grace", grace, "--name", f"w{len(fleet.workers)}", *arguments]
        self.log = fleet.folder / f"worker-{len(fleet.workers)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env={**fleet.environment, **environment},
                cwd=fleet.home,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def engines(self) -> list[int]:
        return children_of(self.pid)

    @property
    def children(self) -> list[int]:
        return [child for engine in self.engines for child in children_of(engine)]

    @property
    def everyone(self) -> list[int]:
        """Who may run a job of it: one that crashed its process before runs in a child."""
        return [*self.engines, *self.children]

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """As a power cut would for this worker: all of it, with no word."""
        for pid in [self.pid, *self.engines, *self.children]:
            kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class Fleet:
    """Some workers of one store, and a client of it."""

    def __init__(self, folder: Path, url: str, *, target: str = TARGET, home: Path = HERE, **settings: str) -> None:
        self.folder = folder
        self.url = url
        self.target = target
        self.home = home
        """where workers are started: what they import is found from there"""
        self.environment = {
            **os.environ,
            "MAINSTAY_STORE": self.url,
            "CHAOS_FOLDER": str(folder),
            **{f"MAINSTAY_{name.upper()}": value for name, value in settings.items()},
        }
        self.workers: list[Worker] = []
        self.control: Control

    async def open(self) -> Self:
        settings = Settings.from_env({k: v for k, v in self.environment.items() if k.startswith("MAINSTAY_")})
        self.control = Control(await open_store(self.url), settings=settings, rng=random.Random(1))
        return self

    async def close(self) -> None:
        for worker in self.workers:
            if worker.alive:
                worker.kill()
        await self.control.store.close()

    def worker(
        self,
        *,
        processes: int = 1,
        concurrency: int = 10,
        grace: str = "5s",
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> Worker:
        worker = Worker(
            self,
            processes=processes,
            concurrency=concurrency,
            grace=grace,
            environment=environment or {},
            arguments=arguments,
        )
        self.workers.append(worker)
        return worker

    def traces(self, job_id: str | None = None, what: str | None = None) -> list[Trace]:
        try:
            lines = (self.folder / "trace").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            at, said, whose, token, pid = line.split()
            if job_id in (None, whose) and what in (None, said):
                found.append(Trace(float(at), said, whose, int(token), int(pid)))
        return found

    async def traced(self, job_id: str, what: str = "start", *, times: int = 1, within_s: float = 300.0) -> Trace:
        """Wait until a job has left a trace so many times."""
        ends = time.monotonic() + within_s
        while len(found := self.traces(job_id, what)) < times:
            if time.monotonic() > ends:
                raise AssertionError(f"{job_id}: {len(found)} of {times} {what} after {within_s}s\n{self.told()}")
            await asyncio.sleep(0.01)
        return found[times - 1]

    def open_gate(self, name: str) -> None:
        (self.folder / name).touch()

    async def ready(self, sessions: int = 1) -> None:
        """Wait until so many engines are at work."""
        ends = time.monotonic() + 300
        while sum(not session.dead for session in await self.control.store.sessions()) < sessions:
            if time.monotonic() > ends:
                raise AssertionError(f"no {sessions} engines after 300 s\n{self.told()}")
            await asyncio.sleep(0.02)

    async def settled(self, job_id: str, timeout: str = "5m") -> Job:
        try:
            return await self.control.jobs.wait(job_id, timeout)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{await self.story(job_id)}") from None

    async def story(self, job_id: str) -> str:
        """All there is to know, for the report of a failure."""
        return "\n".join([*await self.control.jobs.story(job_id), self.told(), ""])

    async def path(self, job_id: str) -> list[str]:
        return [event.to for event in await self.control.jobs.events(job_id) if event.flag != "note"]

    def told(self) -> str:
        """What the workers said, for the report of a failure."""
        return "\n".join(f"--- {worker.log.name}\n{worker.log.read_text()[-4000:]}" for worker in self.workers)


def children_of(pid: int) -> list[int]:
    """Processes whose parent it is."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            continue
    return found


def kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def gone(pid: int) -> bool:
    """Whether a process is dead; one that nobody has reaped yet is."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
