"""Celery on Redis: prefork pool, no result backend. Variant `late`: acknowledge after the run, not before."""

from __future__ import annotations

import os

import redis
from celery import Celery, group

from . import slots

URL = os.environ["BENCH_URL"]
app = Celery("bench", broker=URL)
if os.environ.get("BENCH_VARIANT") == "late":
    app.conf.task_acks_late = True
    app.conf.task_reject_on_worker_lost = True


@app.task(name="noop")
def noop(i: int) -> None:
    slots.mark(i)


@app.task(name="sleeper")
def sleeper(tag: str, seconds: float) -> None:
    slots.sleep(tag, seconds)


def reset() -> None:
    redis.Redis.from_url(URL).flushdb()


def submit_one(i: int) -> None:
    noop.delay(i)


def submit_many(n: int) -> None:
    group(noop.s(i) for i in range(n)).apply_async()


def submit_sleeper(tag: str, seconds: float) -> None:
    sleeper.delay(tag, seconds)
