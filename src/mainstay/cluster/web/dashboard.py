"""The page of the cluster."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from ...errors import MainstayError
from ...web.dashboard import PageView
from ...web.live import HeldJob
from ..problems import problems_of
from ..status import ClusterStatus, LeadInfo, NodeInfo, NodeState
from .core_grid import core_grid
from .metrics import working_nodes
from .views import masked_cores, masked_status, watch_of

#: jobs that are listed for one node, and for one of many nodes
_JOBS, _FEW_JOBS = 5, 1
#: from this number of nodes on, a row is one line
_DENSE = 30
#: in the order in which they need attention
_ORDER: tuple[NodeState, ...] = ("away", "draining", "active", "closed")


class NodeStyle(NamedTuple):
    """How a state is shown: the kind of its colour, and its sign."""

    kind: str
    sign: str


LOOKS: dict[NodeState, NodeStyle] = {
    "active": NodeStyle("good", "▸"),
    "away": NodeStyle("bad", "?"),
    "draining": NodeStyle("busy", "◌"),
    "closed": NodeStyle("off", "✕"),
}


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node in the table."""

    node: NodeInfo
    look: NodeStyle
    jobs: list[HeldJob]
    """the newest jobs that it runs, with their names"""
    others: tuple[str, ...]
    """ids of jobs that it runs and whose names were not read"""
    more: int
    """jobs that are not listed"""


async def cluster_page(view: PageView) -> Response:
    """Nodes, managers, leaders, alarms, refused requests and the journal."""
    watch = watch_of(view.site.cluster)
    error = ""
    try:
        status: ClusterStatus | None = await watch.fresh()
    except MainstayError as failed:
        # the last known state
        status, error = watch.status, str(failed)
    if status is not None:
        status = masked_status(status, view.masker)
    nodes = [] if status is None else status.nodes
    return view.page(
        "cluster/cluster.html",
        title="Cluster",
        cluster=status,
        error=error,
        problems=[] if status is None else problems_of(status),
        rows=_rows(nodes, _held(view)),
        dense=len(nodes) >= _DENSE,
        few=_JOBS,
        grid=None if error or watch.cores is None else core_grid(masked_cores(watch.cores, view.masker)),
        looks=LOOKS,
        counts={state: n for state in _ORDER if (n := Counter(node.state for node in nodes)[state])},
        totals=None if status is None else _totals(status),
        leads={} if status is None else _leads(status),
        journal=list(reversed(watch.newest())),
    )


def _totals(status: ClusterStatus) -> dict[str, float]:
    working = working_nodes(status)
    return {
        "cores": sum(node.beat.cores for node in working),
        "busy": sum(node.beat.cores * node.beat.cpu for node in working),
        "running": sum(node.beat.running_count for node in working),
    }


def _leads(status: ClusterStatus) -> dict[str, list[LeadInfo]]:
    """The leads of each manager, by its name."""
    found: dict[str, list[LeadInfo]] = {}
    for lead in status.leads:
        found.setdefault(lead.manager, []).append(lead)
    return found


def _held(view: PageView) -> dict[str, HeldJob]:
    """The jobs that sessions hold, by id, from the last snapshot of the store of the cluster."""
    snapshot = view.site.hub.snapshot(view.site.stores.first.name)
    return {job.id: job for session in snapshot.sessions for job in session.jobs}


def _rows(nodes: list[NodeInfo], held: dict[str, HeldJob]) -> list[NodeRow]:
    most = _JOBS if len(nodes) < _DENSE else _FEW_JOBS
    rows = []
    for node in sorted(nodes, key=lambda node: (_ORDER.index(node.state), node.name)):
        running = node.beat.running if node.state != "closed" else ()
        named = [held[job] for job in running if job in held][:most]
        others = tuple(job for job in running if job not in held)[: most - len(named)]
        count = 0 if node.state == "closed" else max(node.beat.running_count, len(running))
        more = count - len(named) - len(others)
        rows.append(NodeRow(node=node, look=LOOKS[node.state], jobs=named, others=others, more=more))
    return rows


PAGES = {"/cluster": cluster_page}

__all__ = ["LOOKS", "PAGES", "NodeRow", "NodeStyle", "cluster_page"]
