"""A cluster on PostgreSQL whose servers are restarted under load, or that loses all its processes at once: what was
acknowledged is done, and what the target counted is in the report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from mainstay.errors import MainstayError
from mainstay.load import FleetDemand, load_file
from mainstay.load.sources import LoadTest
from servers import Postgres, folder
from tests.cluster.load_target import TEST, LoadTarget, load_target
from tests.cluster.local_clusters import RunningCluster, running_cluster, until
from tests.cluster.marked_processes import family
from tests.cluster.node_runs import assert_nothing_was_lost, node_run

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

#: after a power cut, until everything works again
BACK_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with folder("mainstay-power-") as place:
        # every commit is synced: what was acknowledged must be there
        server = Postgres(place)
        try:
            yield server
        finally:
            server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory, server: Postgres) -> AsyncIterator[RunningCluster]:
    place, store = tmp_path_factory.mktemp("power") / "c", f"{server.url()}?auto_migrate=on"
    # a core of each node is left for tasks
    async with running_cluster(place, store=store, nodes=2, cores=2) as running:
        await running.ready(2)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target() -> AsyncIterator[LoadTarget]:
    async with load_target() as serving:
        yield serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> LoadTest:
    file = tmp_path_factory.mktemp("test") / "shop.py"
    file.write_text(TEST)
    return load_file(file)


async def test_tasks_and_a_run_go_on_while_the_store_and_the_bus_are_restarted_in_any_order(
    tmp_path: Path, cluster: RunningCluster, server: Postgres, target: LoadTarget, shop: LoadTest
) -> None:
    file = tmp_path / "go"
    async with node_run(cluster, shop, target, FleetDemand(2, 2)) as run:
        before = await run.loads_from(2)
        held = [await cluster.submit("hold", file=str(file)) for _ in range(4)]
        await cluster.running(held)
        tasks = [await cluster.submit("add", a=number, b=1) for number in range(20)]

        # the store is away, and the bus is restarted meanwhile
        server.stop()
        await bus_restarted(cluster)
        await run.sends(50)
        server.start()
        await run.reported_anew()
        tasks += [await cluster.submit("add", a=number, b=1) for number in range(20)]

        # the bus is away, and the store is restarted meanwhile
        killed = cluster.pid("nats")
        cluster.kill("nats")
        server.stop()
        server.start()
        await restarted(cluster, killed)
        await run.reported_anew()

        file.touch()
        rows = await cluster.settled([*held, *tasks])
        found = await run.cancelled()

    assert {row.status for row in rows} == {"succeeded"}
    assert [(row.token, row.starts) for row in rows[: len(held)]] == [(1, 1)] * len(held)
    assert found.requests == target.total
    assert_nothing_was_lost(found, target)
    assert set(target.by_pid()) == before
    assert await cluster.store.check() == []


async def bus_restarted(cluster: RunningCluster) -> None:
    killed = cluster.pid("nats")
    cluster.kill("nats")
    await restarted(cluster, killed)


async def restarted(cluster: RunningCluster, killed: int) -> None:
    """Return when another server of the bus runs than this one."""

    async def look() -> bool | None:
        return cluster.pid("nats") not in (0, killed) or None

    await until(look)


async def test_after_a_power_cut_everything_is_back_within_30_s_with_every_acknowledged_job(
    tmp_path: Path, cluster: RunningCluster, server: Postgres, target: LoadTarget, shop: LoadTest
) -> None:
    await cluster.ready(2)
    file, tasks, is_cut = tmp_path / "go", list[str](), asyncio.Event()

    async def submit() -> None:
        with contextlib.suppress(MainstayError):
            while not is_cut.is_set():
                tasks.append(await cluster.submit("add", a=len(tasks), b=1))

    async with node_run(cluster, shop, target, FleetDemand(2, 2)) as run:
        before = await run.loads_from(2)
        held = [await cluster.submit("hold", file=str(file)) for _ in range(4)]
        started = await cluster.running(held)
        submitting = asyncio.create_task(submit())
        await run.sends(20)

        for pid in [pid for process in cluster.file.processes for pid in family(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.kill()
        is_cut.set()
        server.start()
        back_s = time.monotonic()
        await submitting
        await cluster.taken_back(held)
        file.touch()
        rows = await cluster.settled([*held, *tasks])
        now = await run.loads_from(4)
        took_s = time.monotonic() - back_s
        found = await run.cancelled()
        print(f"back after {took_s:.1f} s, with {len(rows)} jobs")

    assert {row.status for row in rows} == {"succeeded"}
    assert [row.token for row in started] == [1] * len(held)
    assert took_s < BACK_S
    assert len(now - before) == 2
    assert 0 < found.requests <= target.total
    assert sum(bool(report.loss) for report in found.slices) == 2
    assert await cluster.store.check() == []
