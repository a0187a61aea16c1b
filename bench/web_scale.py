"""What pages and looks of the server cost with a million jobs: `python -m bench.web_scale`.

The rows are made in bulk and moved by SQL, so they have no trail; nothing that is measured here reads one. Server time
is that of the whole app in one process, without a socket: what the machine does besides is in the wall clock, and not
in the processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import httpx

from mainstay.control import Control, JobRequest
from mainstay.stores import Query, open_store
from mainstay.web.live.snapshot_queries import FAST, SLOW
from mainstay.web.options import WebOptions
from mainstay.web.security.middleware import wrapped
from mainstay.web.site import make_site
from mainstay.web.stores import ServedStores
from servers import folder as server_folder
from servers.postgres import FAST as UNSYNCED, Postgres

_BATCH = 5_000
_QUEUES = 8
#: jobs of another queue and name, before all others
RARE = 88
_TIMES = 15
#: by runs of seven, so that every queue has some of each
_SHARES = """CASE WHEN {n} % 20 = 0 THEN 'quarantined' WHEN {n} % 20 = 1 THEN 'failed'
    WHEN {n} % 20 < 8 THEN 'pending' ELSE 'succeeded' END"""
_ERROR = '{"type":"ConnectionRefusedError","message":"port 25","code":"refused"}'
#: a settled row is in no lane
_MOVE = """UPDATE {jobs} SET status = {share}, lane = CASE WHEN {share} = 'pending' THEN 1 ELSE 0 END,
    settled_ms = CASE WHEN {share} = 'pending' THEN NULL ELSE created_ms END,
    error = CASE WHEN {share} IN ('failed', 'quarantined') THEN '{error}' END"""


async def fill(url: str, jobs: int) -> None:
    """So many jobs in a few queues, and before them very few in another."""
    store = await open_store(url)
    control = Control(store)
    plans = [control.jobs.plan(queue=f"queue-{n}") for n in range(_QUEUES)]
    rare = control.jobs.plan(queue="rare")
    await store.insert(control.jobs.new_jobs([JobRequest("rare.send", {"n": n}, rare) for n in range(min(RARE, jobs))]))
    for start in range(RARE, jobs, _BATCH):
        some = range(start, min(jobs, start + _BATCH))
        await store.insert(control.jobs.new_jobs([JobRequest("send", {"n": n}, plans[n % _QUEUES]) for n in some]))
    await store.close()


def spread_sqlite(path: Path) -> None:
    db = apsw.Connection(str(path))
    share = _SHARES.format(n="(rowid / 7)")
    db.execute(_MOVE.format(jobs="jobs", share=share, error=_ERROR))
    db.execute("DELETE FROM tallies")
    db.execute("INSERT INTO tallies (queue, status, n) SELECT queue, status, count(*) FROM jobs GROUP BY 1, 2")
    db.close()


async def spread_postgres(url: str) -> None:
    db = await asyncpg.connect(url)
    await db.execute(_MOVE.format(jobs="mainstay.jobs", share=_SHARES.format(n="(n / 7)"), error=_ERROR))
    await db.execute("DELETE FROM mainstay.tallies")
    counts = "SELECT count(*), 0, queue, status FROM mainstay.jobs GROUP BY 3, 4"
    await db.execute(f"INSERT INTO mainstay.tallies (n, shard, queue, status) {counts}")
    await db.execute("VACUUM ANALYZE mainstay.jobs")
    await db.close()


@contextlib.asynccontextmanager
async def postgres(jobs: int) -> AsyncIterator[str]:
    with server_folder("web-scale") as place:
        server = Postgres(place, shared_buffers="256MB", **UNSYNCED)
        try:
            url = server.database("jobs")
            await fill(f"{url}?auto_migrate=on", jobs)
            await spread_postgres(url)
            yield url
        finally:
            server.stop()


@contextlib.asynccontextmanager
async def sqlite(jobs: int) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "jobs.db"
        await fill(f"sqlite:///{path}", jobs)
        spread_sqlite(path)
        yield f"sqlite:///{path}"


async def took(what: str, call: Callable[[], Awaitable[Any]]) -> None:
    """Print the median and the worst of some calls."""
    walls, cpus = [], []
    for _ in range(_TIMES):
        wall, cpu = time.perf_counter(), time.process_time()
        await call()
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    wall_ms, cpu_ms = statistics.median(walls), statistics.median(cpus)
    print(f"  {what:<44} {wall_ms:8.1f} ms  worst {max(walls):8.1f} ms  processor {cpu_ms:7.1f} ms", flush=True)


async def measure(url: str) -> None:
    options = WebOptions(rate=1e9)
    async with await ServedStores.open({"main": url}) as stores:
        place = stores.first
        print(" what the store is asked")
        for look in (*FAST, *SLOW):
            await took(f"look: {look.name}", lambda look=look: look.ask(place))
        await took("stats", place.store.stats)
        lists = {
            "newest": Query(),
            "of a queue": Query(queue="queue-3"),
            "of a queue with few": Query(queue="rare"),
            "of a queue with few, pending": Query(queue="rare", status=("pending",)),
            "of a name that few have": Query(name="rare.send"),
            "of a name that most have, failed": Query(name="send", status=("failed",)),
            "of a queue that has none": Query(queue="none"),
            "with a text that none has": Query(text="nine"),
        }
        for name, query in lists.items():
            await took(f"find 50: {name}", lambda query=query: place.store.find(query, limit=50))
        app = make_site(stores, options, tokens=None)
        transport = httpx.ASGITransport(wrapped(app, options))
        base = "http://127.0.0.1:8330"
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url=base) as client,
        ):
            await pages(client)


async def pages(client: httpx.AsyncClient) -> None:
    print(" what the server is asked")

    async def get(path: str) -> httpx.Response:
        answer = await client.get(path)
        answer.raise_for_status()
        return answer

    deep = "/api/v1/jobs?limit=50"
    cursor = None
    for _ in range(20):
        answer = (await get(f"/api/v1/jobs?limit=500{'' if cursor is None else f'&cursor={cursor}'}")).json()
        cursor = answer["next"]
    for path in (
        "/",
        "/jobs",
        "/jobs?queue=rare",
        "/jobs?queue=queue-3",
        "/queues",
        "/api/v1/snapshot",
        "/api/v1/stats",
        "/metrics",
        deep,
        f"{deep}&cursor={cursor}",
    ):
        answer = await client.get(path)
        if answer.status_code == 200:
            await took(
                f"GET {path.partition('&')[0]}{' far down' if 'cursor' in path else ''}", lambda path=path: get(path)
            )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--store", choices=("sqlite", "postgres"), action="append")
    given = parser.parse_args()
    for name in given.store or ("sqlite", "postgres"):
        began = time.perf_counter()
        async with (sqlite if name == "sqlite" else postgres)(given.jobs) as url:
            print(f"{name}: {given.jobs:,} jobs, made in {time.perf_counter() - began:.0f} s", flush=True)
            await measure(url)


if __name__ == "__main__":
    asyncio.run(main())
