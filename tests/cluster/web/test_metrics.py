"""The metrics of a cluster."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from mainstay.cluster.status import ClusterStatus, LeadInfo, ManagerInfo, NodeBeat, NodeInfo, NodeState
from mainstay.cluster.web.metrics import CLUSTER_METRICS, rows_of
from tests.cluster.web.memory_clusters import failed, is_led, seen, served_cluster
from tests.web.conftest import serving

Found = dict[tuple[str, ...], float]


def node(name: str, state: NodeState = "active", since_ms: int = 0, **beat: Any) -> NodeInfo:
    return NodeInfo(
        name=name,
        state=state,
        since_ms=since_ms,
        heard_ms=0,
        beat=NodeBeat(node=name, number=1, incarnation="a", **beat),
        overload="busy" if state == "active" else "normal",
    )


STATUS = ClusterStatus(
    cluster="shop",
    environment="live",
    at_ms=100_000,
    manager="m1",
    managers=[
        ManagerInfo(
            name="m1",
            session="s1",
            refused={"role": 2},
            closed={"silence": 3, "proven": 1},
            stale=4,
            windows_late=5,
            level="stressed",
            shed={"data": 8, "telemetry": 9},
            limited={"dispatch": 3},
            led=("j1", "j2"),
            alarms={"version:n7": "n7 is old", "version:n8": "n8 is old"},
        ),
        ManagerInfo(name="m2", refused={"role": 1}, alarms={"mass_silence": "most are", "version:n7": "n7 is old"}),
    ],
    nodes=[
        node("n1", cores=4, cpu=0.5, running=("secret-job",), running_count=7),
        node("n2", "draining", cores=2, cpu=1.0, running_count=1),
        node("n3", "away", since_ms=30_000, cores=8, running_count=9),
        node("n4", "away", since_ms=90_000),
        node("n5", "closed"),
    ],
    leads=[
        LeadInfo(name="leader", manager="m1", session="s1", epoch=6, takeover_s=1.5),
        LeadInfo(name="placement", manager="", session="gone", epoch=3),
    ],
)


def rows(status: ClusterStatus | None, *, is_up: bool = True) -> Found:
    return {
        (metric.name.removeprefix("mainstay_cluster_"), *labels[2:]): value
        for metric, labels, value in rows_of(status, is_up=is_up)
    }


def test_the_load_of_a_manager_and_what_it_refuses_are_counted_by_class() -> None:
    found = rows(STATUS)
    assert (found["manager_level", "m1"], found["manager_level", "m2"]) == (2, 0)
    classes = ("control", "dispatch", "data", "telemetry")
    assert [found["shed_total", "m1", kind] for kind in classes] == [0, 0, 8, 9]
    assert [found["rate_limited_total", "m1", kind] for kind in classes] == [0, 3, 0, 0]
    assert [found["shed_total", "m2", kind] for kind in classes] == [0, 0, 0, 0]


def test_a_status_is_counted() -> None:
    found = rows(STATUS)
    assert [found["nodes", state] for state in ("active", "away", "draining", "closed")] == [1, 2, 1, 1]
    assert found["away_seconds",] == 70.0
    assert (found["cores",], found["cores_busy",], found["running",]) == (6, 4.0, 8)
    assert (found["nodes_overload", "busy"], found["nodes_overload", "normal"]) == (1, 3)
    assert found["managers",] == 2
    assert (found["leader", "leader"], found["leader", "placement"]) == (1, 0)
    assert (found["leader_changes_total", "leader"], found["leader_changes_total", "placement"]) == (6, 3)
    assert found["takeover_seconds", "leader"] == 1.5
    assert ("takeover_seconds", "placement") not in found
    assert (found["refused_total", "m1", "role"], found["refused_total", "m2", "role"]) == (2, 1)
    assert (found["nodes_closed_total", "m1", "silence"], found["stale_refused_total", "m1"]) == (3, 4)
    assert (found["windows_late_total", "m1"], found["led_jobs", "m1"], found["led_jobs", "m2"]) == (5, 2, 0)
    # each alarm once, whichever managers raise it
    assert (found["alarms", "version"], found["mass_silence",]) == (2, 1)


def test_old_numbers_do_not_pass_for_the_current_state() -> None:
    assert rows(STATUS, is_up=False) == {("up",): 0.0}
    assert rows(None, is_up=False) == {}


def test_every_row_has_the_declared_labels_and_no_id_of_a_job() -> None:
    for metric, labels, _ in rows_of(STATUS, is_up=True):
        assert metric in CLUSTER_METRICS
        assert len(labels) == len(metric.labels)
        assert labels[:2] == ("shop", "live")
        assert not any("secret-job" in label or label.startswith("n1") for label in labels)


async def test_a_server_of_a_cluster_exposes_them() -> None:
    async with served_cluster("m1", "m2") as (cluster, server, watch):
        await cluster.beat("n1", cores=4)
        await seen(watch, lambda status: len(status.nodes) == 1 and is_led(status))
        up = await _scraped(server.client)
        for name in ("m1", "m2"):
            await cluster.stop_manager(name)
        await failed(watch)
        down = await _scraped(server.client)
    assert up["mainstay_cluster_nodes", "active"] == 1
    assert up["mainstay_cluster_managers",] == 2
    assert up["mainstay_cluster_leader_changes_total", "placement"] == 1
    assert down["mainstay_cluster_up",] == 0
    assert ("mainstay_cluster_managers",) not in down


async def test_a_server_without_a_cluster_exposes_none() -> None:
    async with serving() as server:
        assert not any("cluster" in key[0] for key in await _scraped(server.client))


async def test_a_takeover_is_timed_by_the_manager_that_takes_over() -> None:
    async with served_cluster("m1", "m2") as (cluster, _, watch):
        before = await seen(watch, is_led)
        leader = next(lead.manager for lead in before.leads if lead.name == "leader")
        other = next(manager for name, manager in cluster.managers.items() if name != leader)
        await seen(watch, lambda _: other.managers.unled_s("leader") is not None)
        await cluster.stop_manager(leader)
        after = await seen(
            watch, lambda status: any(lead.takeover_s is not None and lead.epoch > 1 for lead in status.leads)
        )
    lead = next(lead for lead in after.leads if lead.takeover_s is not None)
    assert lead.manager not in ("", leader)
    assert lead.takeover_s is not None
    assert 0 <= lead.takeover_s < 30


async def test_refused_requests_of_all_managers_are_added_up() -> None:
    async with served_cluster("m1", "m2") as (cluster, _, watch):
        await seen(watch, lambda status: len(status.managers) == 2)
        for number in range(4):
            stranger = cluster.network.client("node.n1")
            body = msgspec.msgpack.encode({"v": "0.1.0", "c": "local", "e": "default", "id": str(number), "a": {}})
            await stranger.request("data.cluster.node.n1.status", body, 5)
        status = await seen(watch, lambda status: sum(status.refused.values()) == 4)
    assert dict(status.refused) == {"role": 4}


async def _scraped(client: Any) -> Found:
    text = (await client.get("/metrics")).text
    return {
        (sample.name, *(value for name, value in sample.labels.items() if name not in ("cluster", "environment"))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
