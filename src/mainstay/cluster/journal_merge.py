"""One journal from those of all managers.

Each manager writes down what it notices, so that one thing is in several journals, at slightly different times. Of
entries of different managers with the same event about the same node within some seconds, the first one stays.

>>> def noted(at_ms: int, manager: str, event: str = "node_away") -> JournalEntry:
...     return JournalEntry(at_ms=at_ms, event=event, about="n1", text=event, manager=manager)
>>> entries = [noted(1000, "m1"), noted(1900, "m2"), noted(2000, "m1", "node_back"), noted(90_000, "m2")]
>>> [entry.at_ms for entry in merge_journals([entries[:1], entries[1:]])]
[1000, 2000, 90000]
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from .status import JournalEntry

#: two managers notice the same thing within this time
_SAME_MS = 15_000
#: events of one sort about one node, and single entries, that are remembered
_ALIKE, _KNOWN = 100, 10_000


class MergedJournal:
    """Takes entries in any order, and says which are new."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, str, str, str], None] = OrderedDict()
        self._alike: dict[tuple[str, str], deque[tuple[int, set[str]]]] = {}
        """by event and node: when it happened, and the managers that have reported it"""

    def add(self, entry: JournalEntry) -> bool:
        """Whether no entry that was added before reports the same."""
        key = (entry.at_ms, entry.manager, entry.event, entry.about)
        if key in self._known:
            return False
        self._known[key] = None
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        if entry.event.startswith("lead_"):  # each manager reports its own leads only
            return True
        alike = self._alike.setdefault((entry.event, entry.about), deque(maxlen=_ALIKE))
        for at_ms, managers in reversed(alike):
            if abs(at_ms - entry.at_ms) <= _SAME_MS and entry.manager not in managers:
                managers.add(entry.manager)
                return False
        alike.append((entry.at_ms, {entry.manager}))
        return True


def merge_journals(journals: Iterable[Iterable[JournalEntry]], *, most: int | None = None) -> list[JournalEntry]:
    """The entries of several journals, oldest first; the newest `most`."""
    merged = MergedJournal()
    found = sorted((entry for journal in journals for entry in journal), key=lambda entry: (entry.at_ms, entry.manager))
    kept = [entry for entry in found if merged.add(entry)]
    return kept if most is None else kept[max(0, len(kept) - most) :]


__all__ = ["MergedJournal", "merge_journals"]
