"""What changed between two states of a cluster: a client that has the state of some version gets only that."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..status import ClusterStatus, LeadInfo, ManagerInfo, NodeInfo

#: nodes that have left and are remembered; a client that knows an older state gets the whole one
_GONE = 1000


class ClusterChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is different since the state that a client has."""

    at_ms: int
    manager: str
    """who answered"""
    nodes: list[NodeInfo] = []
    """new ones, and those in another state"""
    gone: list[str] = []
    """nodes that the managers do not remember any more"""
    managers: list[ManagerInfo] | None = None
    """all of them, if any differs"""
    leads: list[LeadInfo] | None = None
    """the same"""
    alarms: list[str] | None = None
    refused: Mapping[str, int] | None = None


class ClusterVersions:
    """At which version each part of the state of a cluster changed last."""

    def __init__(self) -> None:
        self.version = 0
        """grows with each state in which something that matters differs"""
        self._nodes: dict[str, tuple[int, object]] = {}
        """by name: its version, and what matters of it"""
        self._gone: dict[str, int] = {}
        self._oldest = 0
        """clients with an earlier version are told everything"""
        self._parts: dict[str, tuple[int, object]] = {}

    def observe(self, status: ClusterStatus) -> None:
        """Compare the next state with the last one."""
        new = self.version + 1
        changed = False
        for name, part in _parts_of(status).items():
            if name not in self._parts or self._parts[name][1] != part:
                self._parts[name] = (new, part)
                changed = True
        nodes = {node.name: _content(node) for node in status.nodes}
        for name, content in nodes.items():
            if name not in self._nodes or self._nodes[name][1] != content:
                self._nodes[name] = (new, content)
                self._gone.pop(name, None)
                changed = True
        for name in [name for name in self._nodes if name not in nodes]:
            del self._nodes[name]
            self._gone[name] = new
            changed = True
        while len(self._gone) > _GONE:
            self._oldest = self._gone.pop(next(iter(self._gone)))
        self.version += changed

    def since(self, version: int, status: ClusterStatus) -> ClusterChange | None:
        """What of the last state is new to a client that has this version; None: it needs the whole state."""
        if version < max(1, self._oldest):
            return None
        parts = {name for name, (at, _) in self._parts.items() if at > version}
        return ClusterChange(
            at_ms=status.at_ms,
            manager=status.manager,
            nodes=[node for node in status.nodes if self._nodes[node.name][0] > version],
            gone=[name for name, at in self._gone.items() if at > version],
            managers=status.managers if "managers" in parts else None,
            leads=status.leads if "leads" in parts else None,
            alarms=status.alarms if "alarms" in parts else None,
            refused=status.refused if "refused" in parts else None,
        )


def _parts_of(status: ClusterStatus) -> dict[str, object]:
    return {
        "managers": status.managers,
        "leads": status.leads,
        "alarms": status.alarms,
        "refused": status.refused,
    }


def _content(node: NodeInfo) -> object:
    """What clients want to know at once. Each beat has another number and slightly other loads, and each manager hears
    a node at another moment."""
    beat = msgspec.structs.replace(node.beat, number=0, cpu=round(node.beat.cpu, 1), memory=round(node.beat.memory, 1))
    return node.state, node.reason, node.overload, beat


__all__ = ["ClusterChange", "ClusterVersions"]
