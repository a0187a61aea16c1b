"""History: what a store's numbers were, for charts. Kept in memory, so it begins when the server does."""

from __future__ import annotations

from collections import deque

import msgspec

from .snapshot import Snapshot

#: the last minutes closely, and the last day roughly
_FINE_MS, _FINE = 2_000, 300
_COARSE_MS, _COARSE = 300_000, 288
#: queues that have a line of their own: those with most that waits
_QUEUES = 50


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers at one moment."""

    at_ms: int
    counts: dict[str, int]
    rates: dict[str, float]
    """moves into each status per minute"""
    submitted: float
    """jobs that came in per minute"""
    waiting: int
    oldest_ready_s: float
    live_sessions: int
    queues: dict[str, int]
    """how many wait in each"""


class History:
    """Samples of one store: ten minutes at two seconds, and a day at five minutes."""

    def __init__(self) -> None:
        self._fine: deque[Sample] = deque(maxlen=_FINE)
        self._coarse: deque[Sample] = deque(maxlen=_COARSE)

    def add(self, snapshot: Snapshot) -> None:
        """Remember its numbers, unless the last ones are too recent for another sample."""
        if not _is_due(self._fine, snapshot.stats_ms, _FINE_MS):
            return
        sample = sample_of(snapshot)
        self._fine.append(sample)
        if _is_due(self._coarse, snapshot.stats_ms, _COARSE_MS):
            self._coarse.append(sample)

    def samples(self) -> list[Sample]:
        """All, in order: the older ones roughly, the last ten minutes closely."""
        if not self._fine:
            return list(self._coarse)
        begins = self._fine[0].at_ms
        return [*(sample for sample in self._coarse if sample.at_ms < begins), *self._fine]


def sample_of(snapshot: Snapshot) -> Sample:
    """Its numbers alone."""
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
    # a clock that was set back begins anew
    return not samples or not 0 <= at_ms - samples[-1].at_ms < every_ms


__all__ = ["History", "Sample", "sample_of"]
