"""A supervisor on the test's own loop, with real engine processes, and a second look at the same store."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mainstay.control import Control
from mainstay.model import Job
from mainstay.stores import open_store
from mainstay.worker.spawn import ENGINE, OsProcesses
from mainstay.worker.supervisor import Supervisor
from mainstay.worker.worker_options import WorkerOptions

ROOT = Path(__file__).parents[2]
FAKE = (sys.executable, str(Path(__file__).with_name("fake_engine.py")))


class Crew:
    """A running supervisor and what a test sees of it."""

    def __init__(self, supervisor: Supervisor, control: Control) -> None:
        self.supervisor = supervisor
        self.control = control
        self.running = asyncio.create_task(supervisor.run())

    async def submit(self, name: str, n: int = 1, **options: object) -> list[str]:
        return [(await self.control.jobs.submit(name, **options)).id for _ in range(n)]

    async def jobs(self, ids: Sequence[str]) -> list[Job]:
        return [await self.control.jobs.get(job_id) for job_id in ids]

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Come back once something is so that sends no event. The test's own timeout is the net."""
        while not await condition():
            if self.running.done():
                raise AssertionError(f"the supervisor ended with {self.running.result()}")
            await asyncio.sleep(0.005)

    async def until_held(self, ids: Sequence[str]) -> None:
        """All of these are claimed, and those that begin have begun."""

        async def held() -> bool:
            return all(job.status == "running" for job in await self.jobs(ids))

        await self.until(held)

    async def until_started(self, ids: Sequence[str]) -> None:
        async def started() -> bool:
            return all(job.started_ms is not None for job in await self.jobs(ids))

        await self.until(started)

    async def engine(self) -> int:
        """The only engine's process, once there is one that is up."""

        async def up() -> bool:
            return len(await self.control.store.sessions()) == 1

        await self.until(up)
        return (await self.control.store.sessions())[0].pid

    async def stop(self) -> int:
        self.supervisor.stop()
        return await self.running


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, number)


def alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@asynccontextmanager
async def crew_on(
    path: Path, *, target: str | None = None, command: Sequence[str] = FAKE, **orders: object
) -> AsyncIterator[Crew]:
    """A crew on a database, gone afterwards whatever the test did."""
    url = f"sqlite:///{path}"
    store = await open_store(url)
    given = WorkerOptions(target=target or url, name="crew", **{"grace_s": 1.0, **orders})  # type: ignore[arg-type]
    crew = Crew(Supervisor(given, processes=OsProcesses(command), rng=random.Random(1)), Control(store))
    try:
        yield crew
    finally:
        while not crew.running.done():
            crew.supervisor.stop()
            await asyncio.sleep(0.05)
        await asyncio.wait([crew.running])
        await store.close()


__all__ = ["ENGINE", "FAKE", "ROOT", "Crew", "alive", "crew_on", "kill"]
