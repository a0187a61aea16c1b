"""The counts of a target, for comparison with those of a load test."""

from __future__ import annotations

from array import array
from collections import defaultdict

import msgspec

from ..stats.histogram import Histogram
from ..stats.model import Latency

#: further paths are counted together
MOST_PATHS = 1000
OTHERS = "(others)"
#: delays that are added to the histograms at a time, which takes less than a tenth of a millisecond
_FOLD = 2048


class PathCounts(msgspec.Struct, kw_only=True):
    """Requests of one path. WebSocket messages are counted under "ws", datagrams under "udp"."""

    begun: int
    completed: int
    statuses: dict[str, int]
    """by status; "closed" and "reset" for a connection that was ended instead"""


class Counts(msgspec.Struct, kw_only=True):
    """The counts of a target at one moment, without the requests for them."""

    begun: int
    """requests that arrived completely"""
    completed: int
    """requests whose response was written completely"""
    abandoned: int
    """requests whose connection was closed before that"""
    under_way: int
    statuses: dict[str, int]
    paths: dict[str, PathCounts]
    received: int
    """bytes, without TLS"""
    sent: int
    connections: int
    """since the start; after a reset, including those that were open then"""
    open: int
    latest: float
    """the most seconds by which a delay was too long"""
    asked: Latency | None = None
    """the requested delays, in seconds; None if there were none"""
    imposed: Latency | None = None
    """the actual delays: from reading a request until its response was written"""


class PathTally:
    """The counts of one path, while the target runs."""

    __slots__ = ("abandoned", "begun", "statuses")

    def __init__(self) -> None:
        self.begun = 0
        self.abandoned = 0
        self.statuses: defaultdict[int | str, int] = defaultdict(int)


class Delays:
    """The delays of delayed requests: the intended time, and the time from reading the request to writing the response.
    The last ones are kept; all are in the histograms."""

    def __init__(self, keep: int) -> None:
        self.meant = array("d")
        self.taken = array("d")
        self.latest = 0.0
        self._keep = keep
        self._next = 0
        self._asked = Histogram()
        self._imposed = Histogram()
        self._new = array("d"), array("d")

    def asked(self) -> Latency | None:
        self._fold()
        return self._asked.latency()

    def imposed(self) -> Latency | None:
        self._fold()
        return self._imposed.latency()

    def _fold(self) -> None:
        asked, imposed = self._new
        self._asked.add(asked)
        self._imposed.add(imposed)
        self._new = array("d"), array("d")

    def add(self, meant: float, taken: float) -> None:
        late = taken - meant
        self.latest = max(self.latest, late)
        asked, imposed = self._new
        asked.append(meant)
        imposed.append(taken)
        if len(asked) >= _FOLD:
            self._fold()
        if len(self.meant) < self._keep:
            self.meant.append(meant)
            self.taken.append(taken)
        elif self._keep:
            self.meant[self._next] = meant
            self.taken[self._next] = taken
            self._next = (self._next + 1) % self._keep


class TargetCounter:
    """All counts of a running target."""

    __slots__ = ("connections", "delays", "open", "received", "sent", "tallies")

    def __init__(self, keep: int) -> None:
        self.open = 0
        self.reset(keep)

    def reset(self, keep: int) -> None:
        """Start from zero. The end of a request under way is not counted."""
        self.tallies: dict[str, PathTally] = {}
        self.received = 0
        self.sent = 0
        self.connections = self.open
        self.delays = Delays(keep)

    def tally(self, path: str) -> PathTally:
        tally = self.tallies.get(path)
        if tally is None:
            if len(self.tallies) >= MOST_PATHS:
                path = OTHERS
            tally = self.tallies.setdefault(path, PathTally())
        return tally

    def now(self) -> Counts:
        begun = sum(tally.begun for tally in self.tallies.values())
        abandoned = sum(tally.abandoned for tally in self.tallies.values())
        statuses: defaultdict[str, int] = defaultdict(int)
        paths = {}
        for path, tally in self.tallies.items():
            for status, n in tally.statuses.items():
                statuses[str(status)] += n
            completed = sum(n for status, n in tally.statuses.items() if status not in BROKEN)
            paths[path] = PathCounts(
                begun=tally.begun,
                completed=completed,
                statuses={str(status): n for status, n in tally.statuses.items()},
            )
        return Counts(
            begun=begun,
            completed=sum(path.completed for path in paths.values()),
            abandoned=abandoned,
            under_way=begun - abandoned - sum(statuses.values()),
            statuses=dict(statuses),
            paths=paths,
            received=self.received,
            sent=self.sent,
            connections=self.connections,
            open=self.open,
            latest=self.delays.latest,
            asked=self.delays.asked(),
            imposed=self.delays.imposed(),
        )


#: instead of a status: the target ended the connection on purpose
BROKEN = frozenset({"closed", "reset"})
