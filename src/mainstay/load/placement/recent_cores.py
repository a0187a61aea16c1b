"""What a leader of placement remembers for a moment about nodes. It is not stored: a new leader does without."""

from __future__ import annotations

import msgspec

from ...control import CancelUnits
from .allocation import HeldCores
from .core_pools import CoreNode
from .decisions import NodePool, PlacedRun, RunAction

#: how long a run keeps its place for a node that was lost: a node that restarts is back within it
LOST_MS = 60_000
#: how long the processes of a slice may live after it was cancelled
LEAVE_MS = 3_000


class RecentCores:
    """Nodes that were lost a moment ago, and cores of slices that were cancelled a moment ago. Times are those of the
    lease clock."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[CoreNode, int]] = {}
        """the nodes of the last minute, each with when it was last in the pool"""
        self._leaving: list[tuple[HeldCores, int]] = []

    def added_to(self, pool: NodePool, lease_ms: int) -> NodePool:
        """The pool with what was there a moment ago."""
        self._seen |= {node.name: (node, lease_ms) for node in pool.core_nodes}
        self._seen = {name: seen for name, seen in self._seen.items() if lease_ms - seen[1] < LOST_MS}
        self._leaving = [each for each in self._leaving if lease_ms - each[1] < LEAVE_MS]
        lost = tuple(node for name, (node, _) in sorted(self._seen.items()) if name not in pool.nodes)
        leaving = tuple(held for held, _ in self._leaving)
        return msgspec.structs.replace(pool, lost=lost, leaving=leaving)

    def note(self, run: PlacedRun, action: RunAction, pool: NodePool, lease_ms: int) -> None:
        """An action was written."""
        if not isinstance(action, CancelUnits):
            return
        cancelled = {unit.id for unit in action.units}
        for each in run.open:
            if each.row.id in cancelled and each.row.status == "running" and each.row.session is not None:
                held = HeldCores(run.job.id, pool.names.get(each.row.session, ""), each.call.cores)
                self._leaving.append((held, lease_ms))


__all__ = ["LEAVE_MS", "LOST_MS", "RecentCores"]
