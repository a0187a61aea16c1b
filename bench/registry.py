"""A job registry on what people have: how long one job takes to make, to read and to change, and a thousand to list.

On a folder, and on the servers that stand in for the clouds, on this machine: what is measured is what we add, and how
many requests we make one after the other. A service further away adds its own time to each.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
from rich.table import Table

import servers
from mainstay.clock import SystemClock
from mainstay.lifecycle import Move, apply
from mainstay.model import IdSource
from mainstay.stores import JobStore, Query, SealedChange, open_store
from mainstay.stores.versioned import prepare_versioned
from mainstay.testing import new_job
from servers.azurite import Azurite
from servers.gcs import Gcs
from servers.moto import Moto, dynamodb_url, s3_url

CALL_MS = 100.0
LIST_MS = 300.0
LISTED = 1000

Tell = Callable[[str], object]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done."""

    calls: int = 300
    lists: int = 30


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """What was done how fast, in milliseconds."""

    store: str
    what: str
    p50: float
    p99: float
    bar: float | None

    @property
    def met(self) -> bool:
        return self.bar is None or self.p99 < self.bar


def measure(sizes: Sizes, tell: Tell) -> tuple[list[Took], dict[str, str]]:
    """Each store in turn; and why some could not be."""
    found: list[Took] = []
    skipped: dict[str, str] = {}
    for name, place in _PLACES.items():
        tell(f"registry: {name}")
        try:
            with place() as url:
                found += asyncio.run(_on(name, url, sizes))
        except servers.ServerMissing as error:
            skipped[name] = str(error)
    return found, skipped


def table(found: list[Took]) -> Table:
    made = Table(title="A job registry: milliseconds of a call; servers on this machine")
    for head in ("store", "what"):
        made.add_column(head)
    for head in ("p50", "p99"):
        made.add_column(head, justify="right")
    made.add_column("bar")
    for row in found:
        bar = "" if row.bar is None else f"p99 under {row.bar:g} ms"
        style = "green" if row.met else "red"
        made.add_row(row.store, row.what, f"{row.p50:.1f}", f"{row.p99:.1f}", bar, style="" if not bar else style)
    return made


def save(found: list[Took], skipped: dict[str, str], sizes: Sizes, out: Path) -> None:
    record = {
        "at": time.strftime("%Y-%m-%d"),
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "release": platform.release()},
        "python": platform.python_version(),
        "sizes": msgspec.to_builtins(sizes),
        "listed": LISTED,
        "skipped": skipped,
        "rows": [{**msgspec.to_builtins(row), "met": row.met} for row in found],
    }
    out.write_text(json.dumps(record, indent=2) + "\n")


# -- one store ----------------------------------------------------------------------------------


async def _on(name: str, url: str, sizes: Sizes) -> list[Took]:
    await prepare_versioned(url)
    clock, ids = SystemClock(), IdSource(random.Random(1))
    async with _opened(url) as store:
        jobs = [new_job(clock, ids) for _ in range(sizes.calls)]
        create = await _timed(sizes.calls, lambda n: store.insert([jobs[n]]))
        get = await _timed(sizes.calls, lambda n: store.get([jobs[n].job.id]))
        update = await _timed(sizes.calls, lambda n: store.apply([_note(store, jobs[n].job, clock.now_ms())]))
        if (more := LISTED - sizes.calls) > 0:
            await store.insert([new_job(clock, ids) for _ in range(more)])
        listing = await _timed(sizes.lists, lambda _: store.find(Query(), limit=LISTED))

    async def listed_anew(_: int) -> None:
        async with _opened(url) as fresh:
            assert len((await fresh.find(Query(), limit=LISTED)).jobs) == LISTED

    anew = await _timed(min(sizes.lists, 10), listed_anew)
    what = {"create": create, "get": get, "update": update}
    rows = [_row(name, key, times, CALL_MS) for key, times in what.items()]
    rows.append(_row(name, f"list {LISTED} jobs", listing, LIST_MS))
    rows.append(_row(name, f"open, and list {LISTED} jobs", anew, None))
    return rows


def _note(store: JobStore, job: object, now_ms: int) -> SealedChange:
    move = Move(to="pending", reason="looked at", flag="note")
    moved = apply(job, move, now_ms=now_ms, actor="bench", chain=store.chain)  # type: ignore[arg-type]
    return SealedChange.of(job, moved)  # type: ignore[arg-type]


async def _timed(n: int, call: Callable[[int], Awaitable[object]]) -> list[float]:
    times = []
    for number in range(n):
        began = time.perf_counter()
        await call(number)
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


def _row(store: str, what: str, times: list[float], bar: float | None) -> Took:
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    return Took(store=store, what=what, p50=round(times[len(times) // 2], 2), p99=round(p99, 2), bar=bar)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[JobStore]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


# -- where --------------------------------------------------------------------------------------


@contextmanager
def _folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mainstay-bench-") as folder:
        yield f"file://{folder}/registry"


@contextmanager
def _server(make: Callable[[Path], Azurite | Gcs | Moto], url: Callable[[Azurite | Gcs | Moto], str]) -> Iterator[str]:
    with ExitStack() as stack:
        made = make(stack.enter_context(servers.folder("mainstay-bench-")))
        stack.callback(made.stop)
        yield url(made)


_PLACES = {
    "file": _folder,
    "S3 (moto)": lambda: _server(Moto, lambda made: s3_url(made.url(), "bench")),
    "GCS (emulator)": lambda: _server(Gcs, lambda made: made.database("bench")),
    "Azure (Azurite)": lambda: _server(Azurite, lambda made: made.database("bench")),
    "DynamoDB (moto)": lambda: _server(Moto, lambda made: dynamodb_url(made.url(), "bench")),
}
