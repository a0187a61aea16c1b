"""A client of a cluster's stream gets what is new to it, and the whole state if that is not known any more."""

from __future__ import annotations

import msgspec

from mainstay.cluster.status import ClusterStatus, ManagerInfo, NodeBeat, NodeInfo
from mainstay.cluster.web.changes import ClusterChange, ClusterVersions


def state(
    at_ms: int, *nodes: NodeInfo, managers: tuple[str, ...] = ("m1",), alarms: tuple[str, ...] = ()
) -> ClusterStatus:
    return ClusterStatus(
        cluster="shop",
        environment="default",
        at_ms=at_ms,
        manager="m1",
        managers=[ManagerInfo(name=name) for name in managers],
        nodes=list(nodes),
        leads=[],
        alarms=list(alarms),
    )


def node(name: str, *, cpu: float = 0.0, number: int = 1, heard_ms: int = 0) -> NodeInfo:
    beat = NodeBeat(node=name, number=number, incarnation="i", cpu=cpu)
    return NodeInfo(name=name, state="active", since_ms=0, heard_ms=heard_ms, beat=beat)


def change(versions: ClusterVersions, since: int, last: ClusterStatus) -> ClusterChange:
    found = versions.since(since, last)
    assert found is not None
    return found


def test_a_client_gets_the_nodes_that_changed_since_its_version() -> None:
    versions = ClusterVersions()
    versions.observe(state(1, node("n1"), node("n2")))
    versions.observe(state(2, node("n1"), node("n2", cpu=0.7)))
    versions.observe(last := state(3, node("n1"), node("n2", cpu=0.7), node("n3")))

    assert versions.version == 3
    assert [each.name for each in change(versions, 1, last).nodes] == ["n2", "n3"]
    assert [each.name for each in change(versions, 2, last).nodes] == ["n3"]
    assert change(versions, 2, last).managers is None


def test_new_beats_that_say_the_same_are_no_change() -> None:
    versions = ClusterVersions()
    versions.observe(state(1, node("n1", cpu=0.51)))

    versions.observe(state(2, node("n1", cpu=0.53, number=2, heard_ms=9)))

    assert versions.version == 1


def test_nodes_that_are_gone_are_named_and_may_come_back() -> None:
    versions = ClusterVersions()
    versions.observe(state(1, node("n1"), node("n2")))
    versions.observe(second := state(2, node("n1")))
    gone = change(versions, 1, second)

    versions.observe(third := state(3, node("n1"), node("n2")))

    assert (gone.nodes, gone.gone) == ([], ["n2"])
    assert [each.name for each in change(versions, 1, third).nodes] == ["n2"]
    assert change(versions, 1, third).gone == []


def test_of_the_rest_only_what_differs_is_sent() -> None:
    versions = ClusterVersions()
    versions.observe(state(1, managers=("m1", "m2")))
    versions.observe(last := state(2, managers=("m1",), alarms=("look",)))

    found = msgspec.to_builtins(change(versions, 1, last))

    assert set(found) == {"at_ms", "manager", "managers", "alarms"}
    assert [each["name"] for each in found["managers"]] == ["m1"]


def test_who_knows_nothing_or_only_what_was_forgotten_gets_the_whole_state() -> None:
    versions = ClusterVersions()
    versions.observe(state(1, *(node(f"n{number}") for number in range(1001))))
    versions.observe(state(2, *(node(f"n{number}") for number in range(1, 1001))))
    versions.observe(last := state(3))

    assert versions.since(0, last) is None
    assert versions.since(1, last) is None
    assert len(change(versions, 2, last).gone) == 1000
