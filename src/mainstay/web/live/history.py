"""The history of a store's numbers, for charts. It is kept in memory, so it begins with the server."""

from __future__ import annotations

from collections import deque

import msgspec

from .snapshot import Snapshot

#: the last minutes in detail, and the last day coarsely
_FINE_MS, _FINE = 2_000, 300
_COARSE_MS, _COARSE = 300_000, 288
#: how many queues are kept: those with the most waiting jobs
_QUEUES = 50


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers at one moment."""

    at_ms: int
    counts: dict[str, int]
    rates: dict[str, float]
    """moves into each status per minute"""
    submitted: float
    """submitted jobs per minute"""
    waiting: int
    oldest_ready_s: float
    live_sessions: int
    queues: dict[str, int]
    """queue -> waiting jobs"""


class History:
    """Samples of one store: ten minutes at two seconds, and a day at five minutes."""

    def __init__(self) -> None:
        self._fine: deque[Sample] = deque(maxlen=_FINE)
        self._coarse: deque[Sample] = deque(maxlen=_COARSE)

    def add(self, snapshot: Snapshot) -> None:
        """Add a sample, unless the last one is too recent."""
        if not _is_due(self._fine, snapshot.stats_ms, _FINE_MS):
            return
        sample = sample_of(snapshot)
        self._fine.append(sample)
        if _is_due(self._coarse, snapshot.stats_ms, _COARSE_MS):
            self._coarse.append(sample)

    def samples(self) -> list[Sample]:
        """All samples in order: the last ten minutes in detail, older ones coarsely."""
        if not self._fine:
            return list(self._coarse)
        begins = self._fine[0].at_ms
        return [*(sample for sample in self._coarse if sample.at_ms < begins), *self._fine]


def sample_of(snapshot: Snapshot) -> Sample:
    """The numbers of a snapshot."""
    deepest = sorted(snapshot.queues, key=lambda queue: -queue.waiting)[:_QUEUES]
    return Sample(
        at_ms=snapshot.stats_ms,
        counts=snapshot.counts,
        rates=snapshot.rates,
        submitted=snapshot.submitted,
        waiting=snapshot.waiting,
        oldest_ready_s=snapshot.oldest_ready_s,
        live_sessions=snapshot.live_sessions,
        queues={queue.name: queue.waiting for queue in deepest},
    )


def _is_due(samples: deque[Sample], at_ms: int, every_ms: int) -> bool:
    # after the clock was set back, start again
    return not samples or not 0 <= at_ms - samples[-1].at_ms < every_ms


__all__ = ["History", "Sample", "sample_of"]
