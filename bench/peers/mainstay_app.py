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
    await _EMPTY[URL.partition(":")[0]]()
    await app.open()


async def _empty_sqlite() -> None:
    # a folder of its own: beside the database are its locks and sockets
    folder = Path(URL.partition(":///")[2].partition("?")[0]).parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


async def _empty_redis() -> None:
    import redis.asyncio  # noqa: PLC0415  # each store's driver where it is used

    async with redis.asyncio.Redis.from_url(URL.partition("?")[0]) as client:
        await client.flushdb()


async def _empty_postgresql() -> None:
    import asyncpg  # noqa: PLC0415

    db = await asyncpg.connect(URL.partition("?")[0])
    await db.execute("DROP SCHEMA IF EXISTS mainstay CASCADE")
    await db.execute("CHECKPOINT")
    await db.close()


_EMPTY = {"sqlite": _empty_sqlite, "redis": _empty_redis, "postgresql": _empty_postgresql}


async def submit_one(i: int) -> None:
    await noop.submit(i)


async def submit_many(n: int) -> None:
    await app.submit_many(noop.job(i) for i in range(n))


async def submit_sleeper(tag: str, seconds: float) -> None:
    await sleeper.submit(tag, seconds)


async def settled() -> int:
    """How many jobs the store holds as succeeded."""
    stats = await app.control.store.stats()
    return sum(queue.counts.get("succeeded", 0) for queue in stats.queues.values())
