"""Stands for an engine: prints the processes of three busy children, and waits to be killed."""

from __future__ import annotations

import asyncio

from mainstay.control import Extension
from mainstay.model import Progress
from mainstay.worker import Context, Input
from mainstay.worker.children import Children
from mainstay.worker.worker_options import WorkerOptions
from tests.worker.program import job, stage


class Begun:
    """Hears the first word of a job."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()

    def progress(self, progress: Progress) -> None:
        self.event.set()

    async def save(self, checkpoint: bytes) -> None:
        self.event.set()

    async def extend(self) -> Extension:
        raise NotImplementedError

    async def inputs(self) -> list[Input]:
        return []


async def main() -> None:
    children = Children(WorkerOptions(target="tests.worker.program:stage", name="doomed"), most=3)
    pids = []
    for name in ("waits_on_the_loop", "hears_nothing", "holds_the_interpreter"):
        begun = Begun()
        run = children.begin(job(name), Context(job(name), begun, pack=stage.pack, unpack=stage.unpack))
        await begun.event.wait()
        pids.append(str(run.pid))
    print(*pids, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
