"""SAQ on Redis or PostgreSQL, as the URL says, with its defaults: ten jobs at a time, results kept.

Variant `retries`: a job has three tries.
"""

from __future__ import annotations

import os
from typing import Any

from saq import Queue

from . import slots

URL = os.environ["BENCH_URL"]
ON_REDIS = URL.startswith("redis")
RETRIES = {"retries": 3} if os.environ.get("BENCH_VARIANT") == "retries" else {}
queue = Queue.from_url(URL)


async def noop(_: dict[str, Any], *, i: int) -> None:
    slots.mark(i)


async def sleeper(_: dict[str, Any], *, tag: str, seconds: float) -> None:
    await slots.asleep(tag, seconds)


settings = {"queue": queue, "functions": [noop, sleeper], "concurrency": 10}


async def reset() -> None:
    await queue.connect()
    if ON_REDIS:
        import redis.asyncio  # noqa: PLC0415  # each store's driver where it is used

        async with redis.asyncio.Redis.from_url(URL) as client:
            await client.flushdb()
        return
    import psycopg  # noqa: PLC0415

    with psycopg.connect(URL, autocommit=True) as db:
        db.execute("TRUNCATE saq_jobs")
        db.execute("VACUUM ANALYZE saq_jobs")
        db.execute("CHECKPOINT")


async def submit_one(i: int) -> None:
    await queue.enqueue("noop", i=i)


async def submit_sleeper(tag: str, seconds: float) -> None:
    await queue.enqueue("sleeper", tag=tag, seconds=seconds, **RETRIES)
