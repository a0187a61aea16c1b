"""A real server, real workers and a real store in one folder, for a real browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeVar, cast

import msgspec

from mainstay import grid
from mainstay.control import Completion
from mainstay.load.handler import stored
from tests.load.report.runs import a_summary
from tests.web.dashboard.plant import Plant

T = TypeVar("T")

HERE = Path(__file__).parent


class House:
    """Whatever runs in it ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/jobs.db"
        self.log = folder / "log.txt"
        self._started: list[subprocess.Popen[str]] = []
        self._servers: dict[str, subprocess.Popen[str]] = {}

    def serve(self, *words: str) -> str:
        """A server; its address once it is ready."""
        process = self._start("serve", "--port", "0", "--json", "--store", self.store, *words)
        line = cast("IO[str]", process.stdout).readline()
        assert line, self.log.read_text()
        url = str(json.loads(line)["url"])
        self._servers[url] = process
        return url

    @contextlib.contextmanager
    def frozen(self, url: str) -> Iterator[None]:
        """The server there stands still meanwhile: its connections stay open, and nothing comes over them."""
        server = self._servers[url]
        server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            server.send_signal(signal.SIGCONT)

    def work(self, *words: str, name: str = "plant") -> subprocess.Popen[str]:
        """A worker."""
        return self._start("worker", "plant:app", "--name", name, *(words or ("--grace", "1s")))

    def load(self, *words: str) -> subprocess.Popen[str]:
        """A load test."""
        return self._start("load", "run", *words, "--store", self.store, "--ui", "ci", "--processes", "1")

    def do(self, act: Callable[[Plant], Awaitable[T]]) -> T:
        """Do something as a program would. On a thread of its own: the browser's has a loop that runs."""

        async def main() -> T:
            plant = Plant(self.folder)
            try:
                return await act(plant)
            finally:
                await plant.app.close()

        with ThreadPoolExecutor(1) as threads:
            return threads.submit(asyncio.run, main()).result()

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            cast("IO[str]", process.stdout).close()

    def _start(self, *words: str) -> subprocess.Popen[str]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "mainstay", *words],
                cwd=self.folder,
                env={**os.environ, "PLANT": str(self.folder), "PYTHONPATH": _path()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._started.append(process)
        return process


def _path() -> str:
    """The import path of a process: the program, and what is imported here."""
    return os.pathsep.join(each for each in (str(HERE), os.environ.get("PYTHONPATH", "")) if each)


async def submit_study(plant: Plant) -> str:
    """Sixteen sets of parameters, three seeds each."""
    sets = grid(beta=[0.2, 0.4, 0.6, 0.8], gamma=[0.1, 0.2, 0.3, 0.4])
    return (await plant.app.submit_batch(plant.simulate, params=sets, seeds=range(3))).id


async def two_loads(plant: Plant) -> tuple[str, str]:
    """Two runs of a load test that are over, the second a little faster."""
    control = await plant.app.open()
    session = await control.claims.open_session(worker="generator")
    found = []
    for count in (4000, 4600):
        made = await control.jobs.submit("Shop", kind="load", queue="loads", retries=0)
        jobs = await control.claims.claim(["loads"], session.id, 1)
        await control.claims.start(jobs)
        summary = a_summary(count=count, stream="")
        await control.attempts.complete([Completion(jobs[0], result=msgspec.Raw(stored(summary)))])
        found.append(made.id)
    await control.claims.close_session(session.id)
    return found[0], found[1]
