"""The status of a large cluster comes in parts, and is whole for whoever asks."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.bus import MAX_BODY_BYTES
from mainstay.cluster.status import ClusterStatus, LeadInfo, ManagerInfo, NodeBeat, NodeInfo
from mainstay.cluster.status_pages import status_page
from tests.cluster.web.memory_clusters import memory_cluster


def node(name: str, *, running: int = 10) -> NodeInfo:
    """A node with all that a beat has."""
    beat = NodeBeat(
        node=name,
        number=123_456,
        incarnation="f" * 24,
        sessions=tuple(f"{name}.{number:032x}" for number in range(8)),
        host=f"{name}.eu-central-1.compute.internal",
        pid=4_000_000,
        version="0.9.0",
        target="shop.load:app",
        digest="d" * 64,
        labels={"zone": "eu-central-1a", "kind": "gpu"},
        cores=16,
        running=tuple(f"01k{number:023d}" for number in range(running)),
        running_count=40,
        cpu=0.876,
        memory=0.543,
        cluster="shop",
        environment="production",
    )
    return NodeInfo(name=name, state="active", since_ms=1, heard_ms=2, beat=beat)


def cluster(nodes: int) -> ClusterStatus:
    return ClusterStatus(
        cluster="shop",
        environment="production",
        at_ms=3,
        manager="m1",
        managers=[ManagerInfo(name="m1")],
        nodes=[node(f"n{number:04}") for number in range(nodes)],
        leads=[LeadInfo(name="placement", manager="m1", session="s", epoch=1)],
        alarms=["look"],
    )


@pytest.mark.parametrize("nodes", [0, 1, 1000, 3000])
def test_every_part_of_a_status_fits_into_a_message_and_together_they_are_whole(nodes: int) -> None:
    status = cluster(nodes)
    parts = [status_page(status)]
    while parts[-1].next_after:
        parts.append(status_page(status, parts[-1].next_after))

    assert max(len(msgspec.msgpack.encode(part)) for part in parts) < 0.8 * MAX_BODY_BYTES
    assert [each for part in parts for each in part.status.nodes] == status.nodes
    assert msgspec.structs.replace(parts[0].status, nodes=status.nodes) == status
    assert all(not part.status.managers and not part.status.alarms for part in parts[1:])


def test_a_node_that_alone_is_too_large_is_a_part_of_its_own() -> None:
    assert [each.name for each in status_page(cluster(3), "n0000", most_bytes=10).status.nodes] == ["n0001"]


async def test_an_operator_gets_all_nodes_of_a_large_cluster() -> None:
    async with memory_cluster("m1") as of:
        names = [f"n{number:04}" for number in range(1500)]
        for name in names:
            beat = node(name).beat
            await of.beat(name, **{field: getattr(beat, field) for field in ("sessions", "host", "digest", "running")})

        status = await of.client.status()
        while len(status.nodes) < len(names):
            status = await of.client.status()

    assert [each.name for each in status.nodes] == names
    assert [each.name for each in status.managers] == ["m1"]
    assert len(msgspec.msgpack.encode(status)) > MAX_BODY_BYTES
