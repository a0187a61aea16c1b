"""Huey on Redis: one thread a consumer, its default. A result of None is not stored."""

from __future__ import annotations

import os

import redis
from huey import RedisHuey

from . import slots

URL = os.environ["BENCH_URL"]
huey = RedisHuey("bench", url=URL)


@huey.task()
def noop(i: int) -> None:
    slots.mark(i)


@huey.task()
def sleeper(tag: str, seconds: float) -> None:
    slots.sleep(tag, seconds)


def reset() -> None:
    redis.Redis.from_url(URL).flushdb()


def submit_one(i: int) -> None:
    noop(i)


def submit_sleeper(tag: str, seconds: float) -> None:
    sleeper(tag, seconds)
