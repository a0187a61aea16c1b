"""What `cluster check` says about a cluster."""

from __future__ import annotations

from mainstay.cluster.problems import problems_of
from mainstay.cluster.status import ClusterStatus, LeadInfo, ManagerInfo, NodeBeat, NodeInfo


def node(name: str, digest: str, *, target: str = "shop:app", state="active") -> NodeInfo:
    beat = NodeBeat(node=name, number=1, incarnation="i", target=target, digest=digest)
    return NodeInfo(name=name, state=state, since_ms=0, heard_ms=0, beat=beat)


def cluster(*nodes: NodeInfo) -> ClusterStatus:
    return ClusterStatus(
        cluster="shop",
        environment="default",
        at_ms=0,
        manager="m1",
        managers=[ManagerInfo(name="m1"), ManagerInfo(name="m2")],
        nodes=list(nodes),
        leads=[LeadInfo(name="placement", manager="m1", session="s", epoch=1)],
    )


def test_nodes_with_different_code_of_one_app_are_named() -> None:
    old, new = "a" * 64, "b" * 64

    found = problems_of(cluster(node("n1", old), node("n2", new), node("n3", new), node("n4", old, target="mail:app")))

    assert found == [
        f"nodes run different code of shop:app: {old[:12]} on n1; {new[:12]} on n2, n3. Restart those with the old code"
    ]


def test_closed_nodes_and_nodes_without_a_digest_are_not_compared() -> None:
    old, new = "a" * 64, "b" * 64

    assert problems_of(cluster(node("n1", new), node("n2", old, state="closed"), node("n3", ""))) == []
