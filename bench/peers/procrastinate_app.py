"""Procrastinate on PostgreSQL, ten jobs at a time. Variant `recipe`: its documented periodic retry of stalled jobs."""

from __future__ import annotations

import os

import procrastinate
import psycopg

from . import slots

URL = os.environ["BENCH_URL"]
CHUNK = 1000
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))


@app.task(name="noop")
async def noop(i: int) -> None:
    slots.mark(i)


@app.task(name="sleeper")
async def sleeper(tag: str, seconds: float) -> None:
    await slots.asleep(tag, seconds)


if os.environ.get("BENCH_VARIANT") == "recipe":

    @app.periodic(cron="* * * * *")
    @app.task(queueing_lock="retry_stalled_jobs", pass_context=True, name="retry_stalled_jobs")
    async def retry_stalled_jobs(context: procrastinate.JobContext, timestamp: int) -> None:  # noqa: ARG001
        for job in await app.job_manager.get_stalled_jobs():
            await app.job_manager.retry_job(job)


async def reset() -> None:
    await app.open_async()
    with psycopg.connect(URL, autocommit=True) as db:
        if db.execute("SELECT to_regclass('procrastinate_jobs')").fetchone() == (None,):
            await app.schema_manager.apply_schema_async()
        db.execute("TRUNCATE procrastinate_jobs CASCADE")
        db.execute("VACUUM ANALYZE procrastinate_jobs")
        db.execute("CHECKPOINT")


async def submit_one(i: int) -> None:
    await noop.defer_async(i=i)


async def submit_many(n: int) -> None:
    for first in range(0, n, CHUNK):
        await noop.batch_defer_async(*({"i": i} for i in range(first, min(n, first + CHUNK))))


async def submit_sleeper(tag: str, seconds: float) -> None:
    await sleeper.defer_async(tag=tag, seconds=seconds)


def settled() -> int:
    with psycopg.connect(URL) as db:
        row = db.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'").fetchone()
    assert row is not None
    return int(row[0])
