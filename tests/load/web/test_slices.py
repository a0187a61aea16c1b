"""The nodes of a load test on its page: what each does, what was lost, and what the run waits for."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.control.explain import ClusterFacts, NodeFact
from mainstay.load.handler import stored
from mainstay.load.stats.model import SliceReport, Summary
from mainstay.load.web.slices import load_places
from mainstay.stores import Query
from tests.load.placement.runs import Cluster
from tests.load.report.runs import a_header, a_summary
from tests.web.conftest import Server
from tests.web.dashboard.test_pages import EVIL, text_of


async def a_run(server: Server) -> tuple[Cluster, str]:
    """A run on two nodes, of which one has confirmed its slice."""
    cluster = await Cluster(server.stores.first.store).open(2, 2)
    job_id = await cluster.submit(processes=4, nodes=2)
    await cluster.place()
    await cluster.control.claims.start(await cluster.claimed())
    await cluster.nodes["n1"].confirm()
    return cluster, job_id


async def save(cluster: Cluster, job_id: str, *slices: SliceReport) -> Summary:
    """What its leader saves on the way."""
    summary = a_summary(count=200, header=a_header(token=0), slices=list(slices), verdict="running", ended="running")
    checkpoint = msgspec.msgpack.encode({"summary": msgspec.Raw(stored(summary)), "fleet": {}})
    job = await cluster.job(job_id)
    claims = cluster.control.claims
    await claims.report([claims.progress(job, 1, 2, checkpoint=checkpoint)])
    return summary


async def test_a_run_without_numbers_shows_its_nodes_and_what_it_waits_for(server: Server) -> None:
    cluster, job_id = await a_run(server)
    waiting = await cluster.submit(processes=3)

    text = await text_of(server, f"/loads/{job_id}")
    late = await text_of(server, f"/loads/{waiting}")

    assert "This run has no numbers yet." in text
    assert "<b>n1</b>" in text
    assert "running</span>" in text
    assert "assigned</span>" in text
    assert "Slice 1: node n2 has not confirmed it" in text
    assert "It needs 3 cores; 0 of 4 are free on 2 nodes; place 1 of 1." in late


async def test_a_node_that_no_manager_hears_has_no_free_cores(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await Cluster(server.stores.first.store).open()
    for name in ("n1", "n2"):
        await cluster.node(name, 4, standing=True)
    waiting = await cluster.submit(processes=5)
    sessions = {name: (node.id,) for name, node in cluster.nodes.items()}
    active = NodeFact(name="n1", state="active", heard_ms=1000, sessions=sessions["n1"])
    away = NodeFact(name="n2", state="away", heard_ms=1000, sessions=sessions["n2"])

    async def facts(*_: object) -> ClusterFacts:
        return ClusterFacts(at_ms=2000, nodes=(active, away))

    monkeypatch.setattr(type(server.site), "cluster_facts", facts)
    text = await text_of(server, f"/loads/{waiting}")
    assert "It needs 5 cores. The 1 node that it may use has 4 cores and cannot hold it." in text


async def test_a_run_at_work_shows_the_requests_of_each_node_and_what_was_lost(server: Server) -> None:
    cluster, job_id = await a_run(server)
    await save(
        cluster,
        job_id,
        SliceReport(slice=0, token=1, node="n1", processes=2, requests=4321, failed=7),
        SliceReport(slice=1, token=0, node="n9", processes=2, requests=55, loss=f"silent for 25 s {EVIL}", gap_s=8.2),
    )

    text = await text_of(server, f"/loads/{job_id}")

    for part in ("4,321", '<b class="bad">7</b>', "8.2s", "silent for 25 s", "lost</span>"):
        assert part in text, part
    assert "<script>alert" not in text
    [unit] = [
        row.id for row in (await cluster.store.find(Query(parent=job_id), limit=9)).jobs if row.unit == "slice/1/0"
    ]
    assert f'href="/jobs/{unit}">slice 0</a>' in text
    routes = (await server.client.get(f"/api/v1/jobs/{job_id}/routes")).json()
    assert [each["assignments"][0]["node"] for each in routes["units"]] == ["n1", "n2"]


async def test_of_many_nodes_those_that_need_attention_come_first(server: Server) -> None:
    cluster, job_id = await a_run(server)
    reports = [SliceReport(slice=number, token=9, node=f"x{number}", processes=1, requests=1) for number in range(20)]
    reports[17] = msgspec.structs.replace(reports[17], loss="it is gone")
    summary = await save(cluster, job_id, *reports)

    places = await load_places(cluster.store, await cluster.job(job_id), summary)

    assert not places.is_short
    assert places.rows[0].style.word == "assigned", "slice 1 is not confirmed"
    assert places.rows[1].loss == "it is gone"
    assert [row.number for row in places.rows[2:6]] == [0, 0, 1, 2]
