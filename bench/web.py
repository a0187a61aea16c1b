"""The HTTP side: a real `mainstay serve` over SQLite and over PostgreSQL, under load, watched, and over many jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

import servers
from mainstay.control import Control
from mainstay.stores import open_store
from servers import Postgres, ServerMissing
from servers.programs import package_version

from . import web_load, web_pages, web_streams
from .queues import Tell
from .runs import Run, begun
from .web_load import Asked, LoadFailed
from .web_pages import Paged
from .web_server import ServeFailed, postgres_pid, served
from .web_streams import Streamed, Vanished

SCENARIOS = ("web_submit", "web_read", "web_streams", "web_scale")
STORES = ("sqlite", "postgresql")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How long, and over how much."""

    seconds: int = 6
    connections: tuple[int, ...] = (1, 10, 50)
    """Of those that submit one job at a time."""
    middle: int = 10
    """Connections of all others."""
    clients: int = 200
    """Of live streams."""
    watched: int = 200
    """Jobs that are submitted while the overview is watched."""
    moves: int = 5
    """Of each job that is followed, before it ends."""
    jobs: int = 1_000_000
    pages: int = 1000
    """Which page of so many jobs is set beside the first."""
    times: int = 200
    """That each page is asked for."""


class Report(Run, kw_only=True):
    """What a run found, as it is kept."""

    sizes: Sizes
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    trouble: list[str] = msgspec.field(default_factory=list)
    asked: list[Asked] = msgspec.field(default_factory=list)
    streamed: list[Streamed] = msgspec.field(default_factory=list)
    vanished: list[Vanished] = msgspec.field(default_factory=list)
    paged: list[Paged] = msgspec.field(default_factory=list)


def measure(scenarios: Sequence[str], sizes: Sizes, tell: Tell) -> Report:
    """Run the scenarios. What cannot be set up is skipped, with the reason."""
    began = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = Report(**begun(folder), sizes=sizes)
        generators = _generators(report)
        for store in STORES:
            place = folder / store
            place.mkdir(mode=0o755)
            try:
                if set(scenarios) & {"web_submit", "web_read", "web_streams"}:
                    _small(store, list(scenarios), generators, place, report, tell)
                if "web_scale" in scenarios:
                    tell(f"web: {sizes.jobs:,} jobs on {store}")
                    report.paged += asyncio.run(web_pages.measure(store, sizes.jobs, sizes.pages, sizes.times, place))
            except ServerMissing as error:
                report.skipped[store] = str(error)
            except ServeFailed as error:
                report.trouble.append(f"{store}: {error}")
    report.took_s = round(time.monotonic() - began, 1)
    return report


def _small(store: str, scenarios: list[str], generators: list[str], place: Path, report: Report, tell: Tell) -> None:
    """All that begins with an empty store."""
    sizes = report.sizes
    with _opened(store, place, report) as (url, store_pid), served(url, place, store_pid=store_pid) as serving:
        submitted = asyncio.run(_one_job(url))
        jobs = 1
        for work, connections in web_load.plan(scenarios, sizes.connections, sizes.middle):
            for generator in generators:
                what = f"{work.title}, {connections} connections, {generator}, {store}"
                tell(f"web: {what}")
                before = serving.answered()
                try:
                    report.asked.append(
                        web_load.asked(serving, store, work, generator, connections, sizes.seconds, place, submitted)
                    )
                except LoadFailed as error:
                    report.trouble.append(f"{what}: {error}")
                jobs += (serving.answered() - before) * work.jobs
        _compare(url, jobs, store, report)
        if "web_streams" in scenarios:
            streamed, vanished = asyncio.run(
                web_streams.measure(serving, store, url, sizes.clients, sizes.watched, sizes.moves, tell)
            )
            report.streamed += streamed
            report.vanished.append(vanished)
            report.trouble += [
                f"{each.what}, {store}: {each.missed} of {each.clients} clients missed something"
                for each in streamed
                if each.missed
            ]


def _compare(url: str, answered: int, store: str, report: Report) -> None:
    """What was acknowledged is there, and nothing else."""
    stored = asyncio.run(_stored(url))
    refused = sum(each.failed for each in report.asked if each.store == store)
    if stored != answered and not refused:
        report.trouble.append(f"{store}: {answered:,} jobs were acknowledged, and {stored:,} are stored")


async def _one_job(url: str) -> str:
    store = await open_store(url)
    try:
        return (await Control(store).jobs.submit("bench")).id
    finally:
        await store.close()


async def _stored(url: str) -> int:
    store = await open_store(url)
    try:
        stats = await store.stats()
        return sum(n for queue in stats.queues.values() for n in queue.counts.values())
    finally:
        await store.close()


def _generators(report: Report) -> list[str]:
    if not servers.installed("wrk"):
        report.skipped["wrk"] = "it is not on this machine"
        return ["mainstay load"]
    report.versions["wrk"] = package_version("wrk")
    return list(web_load.GENERATORS)


@contextlib.contextmanager
def _opened(store: str, place: Path, report: Report) -> Iterator[tuple[str, int | None]]:
    """An empty store, as durable as it is by default; with its own first process, if it has one."""
    if store == "sqlite":
        yield f"sqlite:///{place}/jobs.db", None
        return
    server = Postgres(place)
    try:
        report.versions["postgresql"] = server.version
        url = f"{server.database('jobs')}?auto_migrate=on"
        yield url, postgres_pid(place)
    finally:
        server.stop()
