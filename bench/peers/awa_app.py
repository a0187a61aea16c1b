"""awa on PostgreSQL: a Rust core that claims and completes in batches, and calls Python for the job itself.

Run as a program it is a worker. Bulk: its COPY call, which its documentation names for many jobs.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
from awa import AsyncClient, Job

from . import slots

URL = os.environ["BENCH_URL"]
WORKERS = int(os.environ.get("BENCH_CLAIM", "50"))
CHUNK = 1000
client = AsyncClient(URL)


@dataclass
class Noop:
    i: int


@dataclass
class Sleeper:
    tag: str
    seconds: float


async def noop(job: Job[Noop]) -> None:
    slots.mark(job.args.i)


async def sleeper(job: Job[Sleeper]) -> None:
    await slots.asleep(job.args.tag, job.args.seconds)


async def reset() -> None:
    """A copy of an empty database: to empty one in place takes it ten seconds, it has hundreds of tables."""
    global client  # noqa: PLW0603  # its connections go with the database
    await client.close()
    name = urlsplit(URL).path[1:]
    empty = f"{name}_empty"
    with psycopg.connect(URL, dbname="postgres", autocommit=True) as db:
        if db.execute("SELECT 1 FROM pg_database WHERE datname = %s", [empty]).fetchone() is None:
            db.execute(f"CREATE DATABASE {empty}")
            made = AsyncClient(urlsplit(URL)._replace(path=f"/{empty}").geturl())
            await made.migrate()
            # chooses the engine that a fresh install has anyway, but only after its first worker
            await made.install_queue_storage()
            await made.close()
            # nobody may be connected to a database that is copied, not even autovacuum
            db.execute(f"ALTER DATABASE {empty} ALLOW_CONNECTIONS false")
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [empty])
        db.execute(f"DROP DATABASE {name} WITH (FORCE)")
        db.execute(f"CREATE DATABASE {name} TEMPLATE {empty}")
        db.execute("CHECKPOINT")
    client = AsyncClient(URL)


async def submit_one(i: int) -> None:
    await client.insert(Noop(i), queue="bench")


async def submit_many(n: int) -> None:
    for first in range(0, n, CHUNK):
        await client.enqueue_many_copy([Noop(i) for i in range(first, min(n, first + CHUNK))], queue="bench")


async def submit_sleeper(tag: str, seconds: float) -> None:
    await client.insert(Sleeper(tag, seconds), queue="bench")


async def work() -> None:
    # here and not at import: it wants the running event loop
    client.task(Noop, queue="bench")(noop)
    client.task(Sleeper, queue="bench")(sleeper)
    await client.start([("bench", WORKERS)])
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work())
