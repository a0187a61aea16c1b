"""What a cluster looks like at one moment, as data: what nodes report, and what managers answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

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


class ManagerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One manager."""

    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    started_ms: int = 0
    session: str = ""
    """its session in the store, which holds the leads"""


class LeadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lead."""

    name: str
    """`leader` or `placement`"""
    manager: str
    """the manager that holds it; empty: a worker outside of the cluster does, or nobody"""
    session: str
    epoch: int


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to the cluster."""

    at_ms: int
    event: str
    """node_joined, node_away, node_back, node_closed, node_draining, node_refused, lead_taken, lead_lost, mass_silence,
    mass_silence_over, manager_joined, manager_left"""
    about: str
    """the node, manager or lead"""
    text: str
    """a sentence for people"""
    manager: str = ""
    """who wrote it"""


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
    """refused requests by reason: role, cluster, version, replay, size, flood"""


__all__ = [
    "ClusterStatus",
    "JournalEntry",
    "LeadInfo",
    "ManagerInfo",
    "NodeBeat",
    "NodeInfo",
    "NodeState",
]
