"""Mainstay, on whatever store the URL names, with its defaults: durable, audit on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mainstay import App

from . import slots

URL = os.environ["BENCH_URL"]
app = App(URL)


@app.task(name="noop")
async def noop(i: int) -> None:
    slots.mark(i)


@app.task(name="sleeper")
async def sleeper(tag: str, seconds: float) -> None:
    await slots.asleep(tag, seconds)


async def reset() -> None:
    await app.close()
    scheme, _, path = URL.partition(":///")
    if scheme != "sqlite":
        raise NotImplementedError(f"the benchmark cannot empty a store of this kind yet: {scheme}")
    # a folder of its own: beside the database are its locks and sockets
    folder = Path(path).parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    await app.open()


async def submit_one(i: int) -> None:
    await noop.submit(i)


async def submit_many(n: int) -> None:
    await app.submit_many(noop.job(i) for i in range(n))


async def submit_sleeper(tag: str, seconds: float) -> None:
    await sleeper.submit(tag, seconds)


async def settled() -> int:
    """How many jobs the store holds as succeeded."""
    stats = await app.control.stats()
    return sum(queue.counts.get("succeeded", 0) for queue in stats.queues.values())
