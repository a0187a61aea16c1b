"""What the tests of batches share: small studies, what they ran, and damage to what they made."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mainstay import App, BatchRun
from mainstay.batch.spec import call_of
from mainstay.control import Control
from mainstay.model import Job
from mainstay.outputs import OutputStore
from mainstay.stores import Query
from mainstay.task.codec import Sealer

UNSEALED = Sealer(None)


async def unit_rows(control: Control, job_id: str, role: str = "unit") -> list[Job]:
    """The units of a batch of one role, each time that one was made."""
    found: list[Job] = []
    cursor: str | None = None
    while True:
        page = await control.store.find(Query(parent=job_id), cursor=cursor, limit=1000)
        found += [row for row in page.jobs if row.name.endswith(f":{role}")]
        cursor = page.cursor
        if cursor is None:
            return found


async def made(control: Control, job_id: str, role: str = "unit") -> Counter[str]:
    """How often a row was made for each unit, by the unit's readable name."""
    return Counter(str(row.unit) for row in await unit_rows(control, job_id, role))


async def places_made(control: Control, job_id: str) -> Counter[tuple[int, int]]:
    """How often a row was made for each place of the manifest."""
    rows = [row for row in await all_rows(control, job_id) if not row.name.endswith(":driver")]
    calls = [call_of(row.payload, UNSEALED) for row in rows]
    return Counter((call.group, call.index) for call in calls)


async def all_rows(control: Control, job_id: str) -> list[Job]:
    found: list[Job] = []
    cursor: str | None = None
    while True:
        page = await control.store.find(Query(parent=job_id), cursor=cursor, limit=1000)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found


async def path(control: Control, job_id: str) -> list[str]:
    """The states that a batch went through."""
    return [event.to for event in await control.jobs.events(job_id) if event.flag != "note"]


async def lacking(run: BatchRun) -> list[tuple[str, str]]:
    """What its last validation listed: where, and in which state it is."""
    service = run._service()
    found: list[tuple[str, str]] = []
    page = 0
    while some := await service.lacking(run.id, page=page):
        found += [(one.path, one.state) for one in some]
        page += 1
    return sorted(found)


# -- damage ----------------------------------------------------------------------------------------------------------


def delete(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip_a_bit(file: Path) -> None:
    """One bit, and the same size."""
    written_ns = file.stat().st_mtime_ns
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(bytes(body))
    # the clock of a file system ticks slowly: damage right after a publish would have the same time
    os.utime(file, ns=(written_ns, written_ns + 1_000_000_000))


#: what is done to a file, and what it is then
DAMAGES: dict[Callable[[Path], None], str] = {delete: "missing", truncate: "corrupt", flip_a_bit: "corrupt"}


def damage(root: Path, paths: Iterable[str]) -> list[tuple[str, str]]:
    """Do each kind of damage in turn to some outputs: what a validation must list."""
    kinds = list(DAMAGES)
    done = []
    for number, path in enumerate(paths):
        kind = kinds[number % len(kinds)]
        kind(root / path)
        done.append((path, DAMAGES[kind]))
    return sorted(done)


# -- storage ---------------------------------------------------------------------------------------------------------


class Meddled:
    """The storage of outputs, and somebody who does something when it is first looked at, or written to."""

    def __init__(self, blobs: Any, **then: Callable[[], Awaitable[Any]]) -> None:
        self._blobs = blobs
        self._then = then

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._blobs, name)
        if name not in self._then:
            return real

        async def meddled(*args: Any) -> Any:
            if (then := self._then.pop(name, None)) is not None:
                await then()
            return await real(*args)

        return meddled


async def outputs_of(app: App, run: BatchRun) -> OutputStore:
    """The store that the workers of this app use: the same object."""
    await app.open()
    return await run._service().store(run.id)


@asynccontextmanager
async def meddling(app: App, run: BatchRun, **then: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    store = await outputs_of(app, run)
    real = store.blobs
    store.blobs = Meddled(real, **then)  # type: ignore[assignment]
    try:
        yield
    finally:
        store.blobs = real
