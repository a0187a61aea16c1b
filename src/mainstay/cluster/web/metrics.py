"""The metrics of a cluster. They have no ids of jobs and no names of nodes, so their number is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from ...bus import LEVELS, MessageClass
from ...stores.metrics import StoreMetric
from ...web import ClusterRow
from ..core_view import ClusterCores
from ..status import ClusterStatus, ManagerInfo, NodeInfo, NodeState

_OF = ("cluster", "environment")
_STATES: tuple[NodeState, ...] = ("active", "away", "draining", "closed")
_OUTCOMES = ("assigned", "confirmed", "replaced", "given_back", "lost", "failed", "given_up")
_LEADS = ("leader", "placement")


def _metric(name: str, kind: Literal["gauge", "counter"], labels: tuple[str, ...], text: str) -> StoreMetric:
    return StoreMetric(f"mainstay_cluster_{name}", kind, (*_OF, *labels), text)


UP = _metric("up", "gauge", (), "1 if a manager answered the last time this server asked, else 0")
NODES = _metric("nodes", "gauge", ("state",), "nodes by state: active, away, draining, closed")
AWAY = _metric("away_seconds", "gauge", (), "how long the node has been away that is away longest; 0: none is")
OVERLOADED = _metric(
    "nodes_overload", "gauge", ("level",), "nodes that are not closed by load: normal, busy, stressed, overloaded"
)
CORES = _metric("cores", "gauge", (), "cores of the nodes that are active or draining")
CORES_BUSY = _metric("cores_busy", "gauge", (), "cores in use on these nodes")
RUNNING = _metric("running", "gauge", (), "jobs that these nodes run")
MANAGERS = _metric("managers", "gauge", (), "managers that the others hear")
LEADER = _metric("leader", "gauge", ("lead",), "1 if a known manager holds the lead, else 0; 0 lasts for seconds")
CHANGES = _metric("leader_changes_total", "counter", ("lead",), "how often a lead got another holder: its epoch")
TAKEOVER = _metric(
    "takeover_seconds",
    "gauge",
    ("lead",),
    "from the last word of the manager that led before to the last takeover, to within two seconds",
)
ALARMS = _metric("alarms", "gauge", ("alarm",), "alarms that are raised, by sort, such as version or duplicate")
MASS_SILENCE = _metric("mass_silence", "gauge", (), "1 while no silent node is judged because most became silent")
REFUSED = _metric("refused_total", "counter", ("manager", "reason"), "requests and messages that a manager refused")
STALE = _metric("stale_refused_total", "counter", ("manager",), "late writes that were refused by their old token")
CORES_HELD = _metric("cores_held", "gauge", (), "cores that runs on nodes hold")
CORES_FREE = _metric("cores_free", "gauge", (), "cores that a run on nodes could get now")
RUNS = _metric("runs", "gauge", ("state",), "runs on nodes: holding cores, waiting for cores")
SLICES = _metric(
    "slices",
    "gauge",
    ("state",),
    "slices of runs: waiting for a node, assigned and not confirmed, running",
)
DISPATCHES = _metric(
    "dispatches_total",
    "counter",
    ("manager", "outcome"),
    "slices that a manager assigned to nodes: assigned, confirmed, and of those that were assigned again: replaced, "
    "given_back, lost, failed; given_up: not assigned again",
)
SHED = _metric(
    "shed_total",
    "counter",
    ("manager", "class"),
    "requests that a manager shed because of its load, and messages that its queues dropped",
)
LIMITED = _metric(
    "rate_limited_total",
    "counter",
    ("manager", "class"),
    "requests that a manager refused because one caller made too many",
)
MANAGER_LEVEL = _metric(
    "manager_level", "gauge", ("manager",), "load of a manager: 0 normal, 1 busy, 2 stressed, 3 overloaded"
)
UNCONFIRMED = _metric(
    "cancels_unconfirmed_total",
    "counter",
    ("manager",),
    "slices that did not confirm the stop of a run which the manager led; they stop by themselves within 20 s",
)
WINDOWS_LATE = _metric(
    "windows_late_total",
    "counter",
    ("manager",),
    "windows of runs that a manager has led to their end: those that came late, and were counted in a later one",
)
LED = _metric("led_jobs", "gauge", ("manager",), "jobs that a manager leads, at most 100")
CLOSED = _metric("nodes_closed_total", "counter", ("manager", "cause"), "nodes closed: by silence, proven, replaced")

CLUSTER_METRICS = (
    UP,
    NODES,
    AWAY,
    OVERLOADED,
    CORES,
    CORES_BUSY,
    CORES_HELD,
    CORES_FREE,
    RUNS,
    SLICES,
    RUNNING,
    MANAGERS,
    LEADER,
    CHANGES,
    TAKEOVER,
    ALARMS,
    MASS_SILENCE,
    REFUSED,
    STALE,
    SHED,
    LIMITED,
    MANAGER_LEVEL,
    CLOSED,
    DISPATCHES,
    UNCONFIRMED,
    WINDOWS_LATE,
    LED,
)


def rows_of(status: ClusterStatus | None, *, is_up: bool, cores: ClusterCores | None = None) -> Iterator[ClusterRow]:
    """The metrics of the last answer. Old numbers would pass for the current state, so without an answer there is only
    `up`; before the first one there is nothing."""
    if status is None:
        return
    of = (status.cluster, status.environment)
    yield UP, of, float(is_up)
    if not is_up:
        return
    yield from _of_nodes(status, of)
    yield MANAGERS, of, len(status.managers)
    leads = {lead.name: lead for lead in status.leads}
    for name in _LEADS:
        lead = leads.get(name)
        yield LEADER, (*of, name), float(lead is not None and lead.manager != "")
        if lead is not None:
            yield CHANGES, (*of, name), lead.epoch
            if lead.takeover_s is not None:
                yield TAKEOVER, (*of, name), lead.takeover_s
    sorts = Counter(
        sort for sort, _ in {(key.partition(":")[0], key) for each in status.managers for key in each.alarms}
    )
    for sort, n in sorted(sorts.items()):
        yield ALARMS, (*of, sort), n
    yield MASS_SILENCE, of, float(sorts["mass_silence"] > 0)
    for manager in status.managers:
        yield from _of_manager(manager, (*of, manager.name))
    if cores is not None:
        yield from _of_cores(cores, of)


def _of_manager(manager: ManagerInfo, of: tuple[str, ...]) -> Iterator[ClusterRow]:
    for reason, n in sorted(manager.refused.items()):
        yield REFUSED, (*of, reason), n
    yield STALE, of, manager.stale
    yield UNCONFIRMED, of, manager.cancels_unconfirmed
    yield WINDOWS_LATE, of, manager.windows_late
    yield LED, of, len(manager.led)
    yield MANAGER_LEVEL, of, LEVELS.index(manager.level)
    # from zero on, so that the first one is seen as an increase
    for kind in MessageClass:
        yield SHED, (*of, kind.value), manager.shed.get(kind.value, 0)
        yield LIMITED, (*of, kind.value), manager.limited.get(kind.value, 0)
    for cause, n in sorted(manager.closed.items()):
        yield CLOSED, (*of, cause), n
    for outcome in _OUTCOMES:
        yield DISPATCHES, (*of, outcome), manager.dispatches.get(outcome, 0)


def _of_nodes(status: ClusterStatus, of: tuple[str, ...]) -> Iterator[ClusterRow]:
    states = Counter(node.state for node in status.nodes)
    for state in _STATES:
        yield NODES, (*of, state), states[state]
    away_ms = [status.at_ms - node.since_ms for node in status.nodes if node.state == "away"]
    yield AWAY, of, max(0, max(away_ms, default=0)) / 1000
    levels = Counter(node.overload for node in status.nodes if node.state != "closed")
    for level in LEVELS:
        yield OVERLOADED, (*of, level), levels[level]
    working = working_nodes(status)
    yield CORES, of, sum(node.beat.cores for node in working)
    yield CORES_BUSY, of, round(sum(node.beat.cores * node.beat.cpu for node in working), 3)
    yield RUNNING, of, sum(node.beat.running_count for node in working)


def _of_cores(cores: ClusterCores, of: tuple[str, ...]) -> Iterator[ClusterRow]:
    yield CORES_HELD, of, cores.used
    yield CORES_FREE, of, cores.free
    yield RUNS, (*of, "holding"), len(cores.runs)
    yield RUNS, (*of, "waiting"), sum(not each.part for each in cores.waiting)
    assigned = sum(share.status == "dispatched" for node in cores.nodes for share in node.shares)
    yield SLICES, (*of, "waiting"), sum(bool(each.part) for each in cores.waiting)
    yield SLICES, (*of, "assigned"), assigned
    yield SLICES, (*of, "running"), sum(len(node.shares) for node in cores.nodes) - assigned


def working_nodes(status: ClusterStatus) -> list[NodeInfo]:
    """The nodes whose numbers count: active and draining ones."""
    return [node for node in status.nodes if node.state in ("active", "draining")]


__all__ = ["CLUSTER_METRICS", "rows_of", "working_nodes"]
