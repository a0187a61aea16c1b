"""PgQueuer on PostgreSQL, with asyncpg: claims and completes in batches, whose size is an option of its worker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from . import slots

URL = os.environ["BENCH_URL"]
CHUNK = 1000


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """The worker: `pgq run bench.peers.pgqueuer_app:main`."""
    pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

    @pgq.entrypoint("noop")
    async def noop(job: Job) -> None:
        slots.mark(int(job.payload or b""))

    @pgq.entrypoint("sleeper")
    async def sleeper(job: Job) -> None:
        tag, seconds = (job.payload or b"").decode().split()
        await slots.asleep(tag, float(seconds))

    yield pgq


_queries: Queries | None = None


def queries() -> Queries:
    assert _queries is not None, "reset comes first"
    return _queries


async def reset() -> None:
    global _queries  # noqa: PLW0603  # connects once, in the loop it is used in
    if _queries is None:
        _queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
        if not await _queries.schema_is_installed():
            await _queries.install()
            # as its documentation advises after an installation
            await _queries.optimize_autovacuum()
    for table in ("pgqueuer", "pgqueuer_log", "pgqueuer_statistics"):
        await _queries.driver.execute(f"TRUNCATE {table}")
        await _queries.driver.execute(f"VACUUM ANALYZE {table}")
    await _queries.driver.execute("CHECKPOINT")


async def submit_one(i: int) -> None:
    await queries().enqueue("noop", str(i).encode())


async def submit_many(n: int) -> None:
    for first in range(0, n, CHUNK):
        payloads = [str(i).encode() for i in range(first, min(n, first + CHUNK))]
        await queries().enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))


async def submit_sleeper(tag: str, seconds: float) -> None:
    await queries().enqueue("sleeper", f"{tag} {seconds}".encode())


async def settled() -> int:
    """How many jobs its log holds as successful."""
    (row,) = await queries().driver.fetch("SELECT count(*) AS n FROM pgqueuer_log WHERE status = 'successful'")
    return int(row["n"])
