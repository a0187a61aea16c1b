"""Counts what becomes of the slices that a placement leader assigns, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from ...control import Assign, FailUnit
from .decisions import PlacedRun, RunAction


class DispatchCounts:
    """Counts since this leader's session began; another leader begins at zero.

    An assignment that ends is counted when its slice is assigned again, so the last one of a run is not. A slice that
    begins and ends between two rounds is not counted as confirmed.
    """

    def __init__(self) -> None:
        self.by_outcome: Counter[str] = Counter()
        self._confirmed: dict[str, int] = {}
        """slices that are confirmed, with the token of the assignment"""

    def observe(self, runs: Iterable[PlacedRun], *, is_first: bool) -> None:
        """Count the slices that nodes have confirmed since the last round. Before the first round of a leader, an
        earlier one has counted them."""
        running = {each.row.id: each.row.token for run in runs for each in run.open if each.row.status == "running"}
        if not is_first:
            fresh = sum(self._confirmed.get(unit) != token for unit, token in running.items())
            self.by_outcome["confirmed"] += fresh
        self._confirmed = running

    def add(self, run: PlacedRun, action: RunAction) -> None:
        """Count an action that is stored."""
        if isinstance(action, FailUnit):
            self.by_outcome["given_up"] += 1
        if not isinstance(action, Assign):
            return
        ids: Collection[str] = {each.unit.id for each in action.assignments}
        self.by_outcome["assigned"] += len(ids)
        for each in run.open:
            if each.row.id in ids and each.past:
                self.by_outcome["replaced"] += 1
                self.by_outcome[each.past[-1].end] += 1


__all__ = ["DispatchCounts"]
