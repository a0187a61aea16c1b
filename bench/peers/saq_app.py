"""SAQ on Redis, with its defaults: ten jobs at a time, results kept. Variant `retries`: a job has three tries."""

from __future__ import annotations

import os
from typing import Any

import redis.asyncio
from saq import Queue

from . import slots

URL = os.environ["BENCH_URL"]
RETRIES = {"retries": 3} if os.environ.get("BENCH_VARIANT") == "retries" else {}
queue = Queue.from_url(URL)


async def noop(_: dict[str, Any], *, i: int) -> None:
    slots.mark(i)


async def sleeper(_: dict[str, Any], *, tag: str, seconds: float) -> None:
    await slots.asleep(tag, seconds)


settings = {"queue": queue, "functions": [noop, sleeper], "concurrency": 10}


async def reset() -> None:
    await queue.connect()
    async with redis.asyncio.Redis.from_url(URL) as client:
        await client.flushdb()


async def submit_one(i: int) -> None:
    await queue.enqueue("noop", i=i)


async def submit_sleeper(tag: str, seconds: float) -> None:
    await queue.enqueue("sleeper", tag=tag, seconds=seconds, **RETRIES)
