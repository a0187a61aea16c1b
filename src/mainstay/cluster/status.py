"""What a cluster looks like at one moment, as data: what nodes report, and what managers answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ..bus import OverloadLevel

NodeState = Literal["active", "away", "draining", "closed"]
"""active: it gets work; away: silent for 10 s, it gets no new work; draining: it finishes; closed: its work is taken
back"""


class NodeBeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The heartbeat of a node: published to all managers every 2 s, never stored."""

    node: str
    number: int
    """grows with every beat of one start: an older one that arrives later is ignored"""
    incarnation: str
    """drawn at each start of the node program"""
    sessions: tuple[str, ...] = ()
    """the sessions of its engines"""
    host: str = ""
    pid: int = 0
    version: str = ""
    """of Mainstay"""
    target: str = ""
    """the app, as `module:app`"""
    digest: str = ""
    """of the app's code"""
    labels: Mapping[str, str] = {}
    cores: int = 0
    running: tuple[str, ...] = ()
    """ids of jobs that it runs now, at most 100"""
    running_count: int = 0
    cpu: float = 0.0
    """share of its cores in use, 0 to 1"""
    memory: float = 0.0
    """share of its memory in use, 0 to 1"""
    draining: bool = False
    cluster: str = ""
    """the cluster and the environment that it belongs to; empty: of a version that does not report them"""
    environment: str = ""


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the managers see it."""

    name: str
    state: NodeState
    since_ms: int
    """when it got into this state"""
    heard_ms: int
    """when a manager last heard of it"""
    beat: NodeBeat
    reason: str = ""
    """why it is away or closed"""
    overload: OverloadLevel = "normal"
    """from its processors and memory, over the last beats"""


class LeadTerm(msgspec.Struct, frozen=True, kw_only=True):
    """The time for which a manager has held a lead."""

    epoch: int
    since_ms: int
    takeover_s: float | None = None
    """from the last word of the manager that led before, to within a second or two; None: it is not known"""


class ManagerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One manager."""

    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    started_ms: int = 0
    session: str = ""
    """its session in the store, which holds the leads"""
    leads: Mapping[str, LeadTerm] = {}
    """the leads that it holds, by name"""
    refused: Mapping[str, int] = {}
    """requests and messages that it has refused since it began, by reason"""
    closed: Mapping[str, int] = {}
    """nodes that it has closed as the leader since it began, by cause"""
    stale: int = 0
    """late writes with an old token that were refused through it since it began"""
    dispatches: Mapping[str, int] = {}
    """slices of runs that it has assigned to nodes as the placement leader since its session began, by outcome:
    assigned, confirmed, replaced, given_back, lost, failed, given_up"""
    cancels_unconfirmed: int = 0
    """slices of runs that it has led since it began which did not confirm their stop"""
    windows_late: int = 0
    """windows of runs that it has led to their end since it began: those that came when their time had been passed on,
    and were counted in a later one"""
    led: tuple[str, ...] = ()
    """ids of the jobs that it leads now, at most 100"""
    alarms: Mapping[str, str] = {}
    """what an operator should look at: sort and name, such as `mass_silence` or `version:n1` -> a sentence"""
    level: OverloadLevel = "normal"
    """how loaded it is, over the last seconds: from `busy` on it sheds telemetry, from `stressed` on data, and when it
    is `overloaded` dispatch; control never"""
    shed: Mapping[str, int] = {}
    """requests and messages that it has shed because of its load since it began, by class: dispatch, data, telemetry"""
    limited: Mapping[str, int] = {}
    """requests that it has refused since it began because one caller made too many, by class"""


class LeadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lead."""

    name: str
    """`leader` or `placement`"""
    manager: str
    """the manager that holds it; empty: a worker outside of the cluster does, or no session"""
    session: str
    epoch: int
    since_ms: int | None = None
    """when the manager took it"""
    takeover_s: float | None = None
    """how long the lead was free before, as far as its manager knows"""


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to the cluster."""

    at_ms: int
    event: str
    """node_joined, node_away, node_back, node_closed, node_draining, node_level, node_refused, lead_taken, lead_lost,
    mass_silence, mass_silence_over, manager_joined, manager_left; of the manager itself: store_away, store_back,
    bus_away, bus_back, manager_level"""
    about: str
    """the node, manager or lead"""
    text: str
    """a sentence for people"""
    manager: str = ""
    """who wrote it"""
    cause: str = ""
    """of a node that is away: silence or disconnected; that is closed: silence, proven or replaced; of node_level: the
    level; of manager_level: delay, cpu or memory"""
    seconds: float | None = None
    """for how long a node that is away or closed had been silent, or the store or the bus was away"""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole cluster, as one manager sees it."""

    cluster: str
    environment: str
    at_ms: int
    manager: str
    """who answers"""
    managers: list[ManagerInfo]
    nodes: list[NodeInfo]
    leads: list[LeadInfo]
    journal: list[JournalEntry] = []
    """the newest entries, newest last"""
    alarms: list[str] = []
    refused: Mapping[str, int] = {}
    """requests and messages that all managers have refused, by reason: cluster, version, role, input, size, overload,
    rate, name, damaged"""
    away_s: float = 10.0
    """a node is away after this time of silence"""
    closed_s: float = 25.0
    """and closed after this time"""


__all__ = [
    "ClusterStatus",
    "JournalEntry",
    "LeadInfo",
    "LeadTerm",
    "ManagerInfo",
    "NodeBeat",
    "NodeInfo",
    "NodeState",
]
