"""taskiq on Redis, no results. Variants: `list` pops a job before it runs; `stream` acknowledges it afterwards."""

from __future__ import annotations

import os

import redis.asyncio
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from . import slots

URL = os.environ["BENCH_URL"]
STREAM = os.environ["BENCH_VARIANT"] == "stream"
broker = RedisStreamBroker(URL) if STREAM else ListQueueBroker(URL)


@broker.task(task_name="noop")
async def noop(i: int) -> None:
    slots.mark(i)


@broker.task(task_name="sleeper")
async def sleeper(tag: str, seconds: float) -> None:
    await slots.asleep(tag, seconds)


async def reset() -> None:
    async with redis.asyncio.Redis.from_url(URL) as client:
        await client.flushdb()
    # makes the consumer group anew, without which a stream skips what was sent before the first worker came
    await broker.startup()


async def submit_one(i: int) -> None:
    await noop.kiq(i)


async def submit_sleeper(tag: str, seconds: float) -> None:
    await sleeper.kiq(tag, seconds)
