"""The cores of a cluster in its API, its stream, its metrics and on its page."""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections.abc import AsyncIterator

import msgspec
from rich.console import Console

from mainstay.cluster.cli.live_status import whole_status
from mainstay.cluster.cli.view import show_status
from mainstay.cluster.core_view import ClusterCores, cluster_cores
from mainstay.cluster.status import ClusterStatus, JournalEntry, ManagerInfo, NodeBeat, NodeInfo
from mainstay.cluster.web.metrics import CLUSTER_METRICS, rows_of
from mainstay.cluster.web.watch import ClusterWatch
from mainstay.control import CoreHolding, CoreUse, CoreWaiter
from mainstay.errors import InvalidInput
from mainstay.model import Offer, Session
from mainstay.testing import MemoryStore
from tests.cluster.web.memory_clusters import EVERY_S, MemoryCluster, seen
from tests.load.placement.runs import Cluster
from tests.web.conftest import Server, serving

SHOP = "01a1f28c-b9ab-77a4-9e4e-153c37766f17"


class FixedCluster:
    """A reader of a cluster that does not change by itself."""

    def __init__(self, nodes: int = 3) -> None:
        names = [f"n{number}" for number in range(1, nodes + 1)]
        beats = [NodeBeat(node=name, number=1, incarnation="i", cores=4, labels={"api_key": "hush"}) for name in names]
        self.nodes = [NodeInfo(name=each.node, state="active", since_ms=1, heard_ms=1, beat=each) for each in beats]
        offer = Offer(tasks={}, cores=4)
        self.sessions = [Session(id=f"{name}.1", node=name, standing=True, offer=offer) for name in names]
        self.error: Exception | None = None

    async def status(self) -> ClusterStatus:
        manager = ManagerInfo(name="m1", dispatches={"assigned": 5, "lost": 1}, cancels_unconfirmed=3)
        return ClusterStatus(
            cluster="shop", environment="live", at_ms=1, manager="m1", managers=[manager], nodes=self.nodes, leads=[]
        )

    async def cores(self) -> ClusterCores:
        if self.error is not None:
            raise self.error
        held = [
            CoreHolding(
                job=SHOP, name="shop", part=f"slice {n}", session=each.id, cores=3, status="running", since_ms=5
            )
            for n, each in enumerate(self.sessions[:-1])
        ]
        waiter = CoreWaiter(job=SHOP[:-1] + "8", name="late", place=1, of=1, cores=9, since_ms=5, reason="It needs 9.")
        return cluster_cores([CoreUse(tuple(held), (waiter,))], self.sessions, self.nodes, at_ms=9)

    async def journal(self, **_: object) -> list[JournalEntry]:
        return []

    async def drain(self, node: str, *, by: str) -> bool:
        del node, by
        return False


@contextlib.asynccontextmanager
async def served(reader: FixedCluster) -> AsyncIterator[tuple[Server, ClusterWatch]]:
    watch = ClusterWatch(reader, every_s=EVERY_S, rng=random.Random(1))
    async with serving(store=MemoryStore(), cluster=watch) as server:
        await seen(watch, lambda _: True)
        yield server, watch


async def test_the_page_has_a_square_for_each_core_and_says_the_same_in_words() -> None:
    async with served(FixedCluster()) as (server, _):
        page = (await server.client.get("/cluster")).text
    assert '<b id="cores-used">6</b> of 12 held by runs, <b>6</b> free' in page
    cell = page[page.index('id="cores-n1"') : page.index('id="cores-n2"')]
    letter = re.search(r'<b class="run run-\d">(\w)</b> 3', cell)
    assert letter is not None
    assert f'aria-label="n1: active; 3 of 4 cores held by runs; {letter[1]} shop slice 0 3 cores; api_key=***"' in cell
    assert len(re.findall(r"M\d+ 0h9", cell)) == 4
    assert f'href="/jobs/{SHOP}"' in page
    assert "It needs 9." in page
    assert "hush" not in page


async def test_the_cores_of_a_hundred_nodes_fit_on_the_page() -> None:
    async with served(FixedCluster(nodes=100)) as (server, _):
        page = (await server.client.get("/cluster")).text
    assert 'class="cores dense"' in page
    assert page.count('id="cores-n') == 100
    assert len(page) < 400_000


async def test_the_api_and_the_metrics_have_them_too() -> None:
    async with served(FixedCluster()) as (server, watch):
        answer = await server.client.get("/api/v1/cluster/cores")
        text = (await server.client.get("/metrics")).text
        assert watch.status is not None
        rows = list(rows_of(watch.status, is_up=True, cores=watch.cores))
    found = msgspec.json.decode(answer.content, type=ClusterCores)
    assert (found.total, found.used, found.free) == (12, 6, 6)
    assert [each.name for each in found.waiting] == ["late"]
    assert found.nodes[0].labels == {"api_key": "***"}
    for sample in ("cores_held", "cores_free"):
        assert f'mainstay_cluster_{sample}{{cluster="shop",environment="live"}} 6.0' in text
    assert 'mainstay_cluster_runs{cluster="shop",environment="live",state="waiting"} 1.0' in text
    dispatches = 'mainstay_cluster_dispatches_total{cluster="shop",environment="live",manager="m1",outcome="lost"} 1.0'
    assert dispatches in text
    unconfirmed = 'mainstay_cluster_cancels_unconfirmed_total{cluster="shop",environment="live",manager="m1"} 3.0'
    assert unconfirmed in text
    assert all(metric in CLUSTER_METRICS and len(labels) == len(metric.labels) for metric, labels, _ in rows)
    assert not any(SHOP in label for _, labels, _ in rows for label in labels)


async def test_managers_that_cannot_tell_their_cores_are_shown_without_them() -> None:
    reader = FixedCluster()
    reader.error = InvalidInput("method", "a cluster has no 'cores'")
    async with served(reader) as (server, watch):
        page = (await server.client.get("/cluster")).text
        answer = await server.client.get("/api/v1/cluster/cores")
        assert (watch.cores, watch.error) == (None, "")
    assert 'id="member-n1"' in page
    assert 'id="cores"' not in page
    assert (answer.status_code, answer.json()["type"]) == (503, "no_manager")


async def test_the_watch_has_a_new_version_only_when_cores_have_changed() -> None:
    reader = FixedCluster()
    async with served(reader) as (_, watch):
        before = watch.cores_version
        await seen(watch, lambda _: True)
        same = watch.cores_version
        reader.sessions.pop()
        await watch.changed.wait()
        await watch.changed.wait()
        after = watch.cores_version
    assert (before, same, after > same) == (1, 1, True)


async def test_managers_read_the_cores_of_their_store_for_the_terminal() -> None:
    cluster = MemoryCluster()
    # before there is a manager that would lead these runs, which have no load test
    runs = await Cluster(cluster.store).open()
    for name in ("n1", "n2"):
        await runs.node(name, 4, standing=True)
    held = await runs.submit(processes=6, nodes=2)
    await runs.place()
    await runs.claimed()
    await runs.confirm()
    late = await runs.submit(processes=20)
    await cluster.start_manager("m1")
    try:
        for name in ("n1", "n2"):
            await cluster.beat(name, sessions=(runs.nodes[name].id,))
        async with ClusterWatch(cluster.client, every_s=EVERY_S) as watch:
            await seen(watch, lambda status: len(status.nodes) == 2)
        found = await whole_status(cluster.client)
    finally:
        await cluster.stop()
    assert found.cores is not None
    assert (found.cores.total, found.cores.used) == (8, 6)
    assert {share.job for node in found.cores.nodes for share in node.shares} == {held}
    assert [(each.job, each.reason) for each in found.cores.waiting] == [
        (late, "It needs 20 cores. The 2 nodes that it may use have 8 cores and cannot hold it.")
    ]
    assert found.data()["cores"]["waiting"][0]["job"] == late
    console = Console(file=io.StringIO(), width=140)
    show_status(found.status, console, found.cores)
    assert isinstance(console.file, io.StringIO)
    assert "6 of 8 held by runs" in console.file.getvalue()
