"""The cores of a cluster at one moment: what each node has, which runs hold them, and which runs wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..control import CoreUse, CoreWaiter
from ..model import Session
from .status import NodeInfo, NodeState


class CoreShare(msgspec.Struct, frozen=True, kw_only=True):
    """The cores of one node that a part of a run holds."""

    job: str
    part: str
    """such as `slice 0`"""
    cores: int
    status: str
    """dispatched: the node has not confirmed it yet"""


class ClusterNodeCores(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node: str
    state: NodeState
    cores: int
    used: int
    """held by runs; more than `cores` if the node was started again with fewer"""
    free: int
    """that a run could get now: none of a node that is away or draining"""
    labels: Mapping[str, str] = {}
    shares: tuple[CoreShare, ...] = ()
    """by job"""


class CoreRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that holds cores."""

    job: str
    name: str
    cores: int
    nodes: int
    since_ms: int
    """when it got the first of them"""


class ClusterCores(msgspec.Struct, frozen=True, kw_only=True):
    """The cores of all nodes, the runs that hold them, and those that wait."""

    at_ms: int
    total: int
    """of nodes that are not closed"""
    used: int
    free: int
    nodes: tuple[ClusterNodeCores, ...]
    """by name; without closed ones"""
    runs: tuple[CoreRun, ...] = ()
    """the oldest first"""
    waiting: tuple[CoreWaiter, ...] = ()
    """parts of runs that wait for another node, and then runs in the order in which they get cores"""


def cluster_cores(
    uses: Iterable[CoreUse], sessions: Iterable[Session], nodes: Sequence[NodeInfo], *, at_ms: int
) -> ClusterCores:
    """The cores of a cluster. The sessions say how many cores a node offers, and the managers in which state it is."""
    uses = list(uses)
    offered: dict[str, int] = {}
    names: dict[str, str] = {}
    for session in sorted(sessions, key=lambda each: (each.started_ms, each.id)):
        names[session.id] = session.node
        if session.node and not session.dead and session.offer is not None and session.offer.cores > 0:
            offered[session.node] = session.offer.cores
    shares: dict[str, list[CoreShare]] = {}
    runs: dict[str, CoreRun] = {}
    held_by: dict[str, set[str]] = {}
    """by run: its nodes"""
    for held in sorted((each for use in uses for each in use.holdings), key=lambda each: (each.job, each.part)):
        share = CoreShare(job=held.job, part=held.part, cores=held.cores, status=held.status)
        node = names.get(held.session, "")
        shares.setdefault(node, []).append(share)
        held_by.setdefault(held.job, set()).add(node)
        run = runs.get(held.job) or CoreRun(job=held.job, name=held.name, cores=0, nodes=0, since_ms=held.since_ms)
        runs[held.job] = msgspec.structs.replace(
            run,
            cores=run.cores + held.cores,
            nodes=len(held_by[held.job]),
            since_ms=min(run.since_ms, held.since_ms),
        )
    known = {info.name: info for info in nodes if info.state != "closed"}
    # a manager that was just started has not heard all of them yet
    unheard = set(shares) - set(known) - {""}
    found = [_node(info, offered.get(name), shares.get(name, [])) for name, info in known.items()]
    found += [_unheard(name, offered.get(name, 0), shares[name]) for name in unheard]
    return ClusterCores(
        at_ms=at_ms,
        total=sum(node.cores for node in found),
        used=sum(node.used for node in found),
        free=sum(node.free for node in found),
        nodes=tuple(sorted(found, key=lambda node: node.node)),
        runs=tuple(sorted(runs.values(), key=lambda run: (run.since_ms, run.job))),
        waiting=tuple(each for use in uses for each in use.waiters),
    )


def _node(info: NodeInfo, offered: int | None, shares: Sequence[CoreShare]) -> ClusterNodeCores:
    used = sum(share.cores for share in shares)
    # a node without a session for placed work gives no cores to runs
    free = 0 if offered is None or info.state != "active" else max(0, offered - used)
    return ClusterNodeCores(
        node=info.name,
        state=info.state,
        cores=info.beat.cores if offered is None else offered,
        used=used,
        free=free,
        labels=dict(info.beat.labels),
        shares=tuple(shares),
    )


def _unheard(name: str, offered: int, shares: Sequence[CoreShare]) -> ClusterNodeCores:
    used = sum(share.cores for share in shares)
    return ClusterNodeCores(node=name, state="away", cores=offered or used, used=used, free=0, shares=tuple(shares))


__all__ = ["ClusterCores", "ClusterNodeCores", "CoreRun", "CoreShare", "cluster_cores"]
