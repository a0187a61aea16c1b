"""What the managers of a cluster know, and its store does not: which nodes are heard, and why one was closed.

The cluster is a layer above; it fills these facts, and the explanation of a job reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class NodeFact(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the managers see it."""

    name: str
    state: str
    """active, away, draining or closed"""
    host: str = ""
    since_ms: int = 0
    """when it came into this state"""
    heard_ms: int = 0
    """when a manager last heard it; 0: none did"""
    sessions: tuple[str, ...] = ()
    reason: str = ""
    """why it is away or closed"""


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a node, from the journal."""

    at_ms: int
    node: str
    cause: str = ""
    """silence, proven or replaced"""
    seconds: float | None = None
    """for how long it had been silent"""
    text: str = ""


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster around a job at one moment."""

    at_ms: int
    nodes: tuple[NodeFact, ...] = ()
    placement: str = ""
    """the manager that leads the placement of work; empty: none is known to"""
    closings: tuple[NodeEvent, ...] = ()
    """nodes that were closed, oldest first"""
    away_s: float = 10.0
    """a node is away after this time of silence"""
    closed_s: float = 25.0
    """and closed after this time"""

    def node_of(self, session: str) -> NodeFact | None:
        """The node that a session belongs to."""
        return next((node for node in self.nodes if session in node.sessions), None)

    def silence_s(self) -> Mapping[str, float]:
        """By session: for how long no manager has heard its node. A node that gets no new work counts as away."""
        return {session: self._silence_of(node) for node in self.nodes for session in node.sessions}

    def _silence_of(self, node: NodeFact) -> float:
        silent_s = max(0.0, (self.at_ms - node.heard_ms) / 1000)
        return max(silent_s, self.away_s + 1) if node.state in ("away", "closed") else min(silent_s, self.away_s - 1)


__all__ = ["ClusterFacts", "NodeEvent", "NodeFact"]
