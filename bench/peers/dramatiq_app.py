"""Dramatiq on Redis, with its defaults: eight threads, acknowledged after the run, no results."""

from __future__ import annotations

import os

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from . import slots

URL = os.environ["BENCH_URL"]
dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor
def noop(i: int) -> None:
    slots.mark(i)


@dramatiq.actor
def sleeper(tag: str, seconds: float) -> None:
    slots.sleep(tag, seconds)


def reset() -> None:
    redis.Redis.from_url(URL).flushdb()


def submit_one(i: int) -> None:
    noop.send(i)


def submit_sleeper(tag: str, seconds: float) -> None:
    sleeper.send(tag, seconds)
