"""A lab: a folder with a study in it, workers that drive its batches, and whatever runs them outside."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainstay import App, BatchRun, grid
from mainstay.control import Control
from mainstay.stores import Query
from tests.batch.runners.scheduler import Spool

HERE = Path(__file__).parent


class Lab:
    def __init__(self, folder: Path, app: App) -> None:
        self.folder = folder
        self.app = app
        self.spool = Spool(folder / "spool")

    @property
    def control(self) -> Control:
        return self.app.control

    async def submit(self, runner: str, *, waits: int = -1, seeds: int = 4, study: str = "lab") -> BatchRun:
        """A batch of some units; the one with a certain seed waits until it is told to go."""
        batch = self.app.batches[study]
        return await self.app.submit_batch(batch, params=grid(waits=[waits]), seeds=range(seeds), runner=runner)

    def go(self) -> None:
        (self.folder / "go").touch()

    async def command(self, *words: str) -> asyncio.subprocess.Process:
        """A command of ours, as a process."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mainstay", *words),
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def said(self, *words: str) -> tuple[int, str]:
        process = await self.command(*words)
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def execute(self, run: BatchRun, *words: str) -> asyncio.subprocess.Process:
        """Run units here. It stays for the aggregation, which a busy machine may plan late."""
        return await self.command("batch", "exec", run.id, "--app", "lab:app", "--linger", "5m", *words)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """An ordinary worker: it drives batches."""
        process = await self.command("worker", "lab:app", "--grace", "1s")
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.communicate()

    async def until(self, look: Callable[[], Awaitable[bool]]) -> None:
        while not await look():
            await asyncio.sleep(0.02)

    async def until_told(self, run: BatchRun, text: str) -> None:
        async def heard() -> bool:
            return await self.told(run, text)

        await self.until(heard)

    async def told(self, run: BatchRun, text: str) -> bool:
        return any(text in line for line in await run.story())

    async def units(self, run: BatchRun, *statuses: str) -> int:
        counts = await self.control.jobs.unit_counts(run.id)
        return sum(counts.get(status, 0) for status in statuses)

    async def until_done(self, run: BatchRun, n: int) -> None:
        async def done() -> bool:
            return await self.units(run, "succeeded") >= n

        await self.until(done)

    async def who_ran(self, run: BatchRun) -> set[str]:
        """The names of the workers that ran units, without their numbers."""
        rows = (await self.control.store.find(Query(parent=run.id), limit=100)).jobs
        ids = [row.id for row in rows if row.name != "lab:driver"]
        actors = [
            event.actor for job_id in ids for event in await self.control.jobs.events(job_id) if event.to == "running"
        ]
        return {actor.partition("-")[0] for actor in actors}


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    folder = tmp_path / "lab"
    (folder / "spool").mkdir(parents=True)
    for name in ("lab.py", "scheduler.py"):
        shutil.copy(HERE / name, folder / name)
    monkeypatch.setenv("MAINSTAY_STATE", str(folder / "state"))
    spec = importlib.util.spec_from_file_location("lab", folder / "lab.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        async with module.app:
            yield Lab(folder, module.app)
    finally:
        end_all(folder)


def end_all(folder: Path) -> None:
    """Nothing that a test started outlives it, whatever it detached itself from."""
    mark = f"MAINSTAY_STATE={folder}/state".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = mark in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours and int(process.name) != os.getpid():
            os.kill(int(process.name), signal.SIGKILL)
