"""How many jobs an engine holds beyond those it runs. Pure.

A few keep it busy while the next claim is pending; many would be kept from workers that are free. So it holds as many
as it runs in a tenth of a second: none if jobs are slow, three batches if they are quick. That number follows from how
long jobs take, and from the time between two ends while other jobs wait: if many processes share a core, even quick
jobs end slowly. The next batch is claimed as soon as there is room for it, and the claim may take as long as the other
two batches last: on a busy machine a claim takes longer than the jobs of one batch.
"""

from __future__ import annotations

AHEAD_MS = 100.0
#: the weight of a new duration in the moving average
_WEIGHT = 0.1
#: the same for the time between two ends, which come in bursts
_GAP_WEIGHT = 0.02
#: the most batches that are held
_BATCHES = 3


class ClaimPace:
    """Learns how long jobs take; says how many to hold, and whether to claim now.

    >>> pace = ClaimPace(concurrency=10, batch=100)
    >>> pace.wanted(running=0, waiting=0), pace.wanted(running=10, waiting=0)
    (10, 0)
    >>> for n in range(100): pace.finished(1, at_ms=n / 10, waiting=5)
    >>> pace.wanted(running=10, waiting=0), pace.wanted(running=10, waiting=200), pace.wanted(running=10, waiting=201)
    (100, 100, 0)
    """

    def __init__(self, *, concurrency: int, batch: int) -> None:
        self._concurrency = concurrency
        self._batch = batch
        self._most = _BATCHES * batch
        self._average_ms: float | None = None
        self._gap_ms: float | None = None
        self._last_ms: float | None = None
        """when the last one ended, if others waited to begin"""

    def finished(self, took_ms: float, *, at_ms: float, waiting: int) -> None:
        """A job has ended, and `waiting` others wait to begin. If none does, the time to the next end says nothing."""
        average, gap, last_ms = self._average_ms, self._gap_ms, self._last_ms
        self._average_ms = took_ms if average is None else average + _WEIGHT * (took_ms - average)
        if last_ms is not None:
            took_ms = at_ms - last_ms
            self._gap_ms = took_ms if gap is None else gap + _GAP_WEIGHT * (took_ms - gap)
        self._last_ms = at_ms if waiting else None

    def stuck(self) -> None:
        """Waiting jobs could not begin in time: the running jobs are slow, whatever the earlier ones were."""
        self._average_ms = self._concurrency * AHEAD_MS * 2

    def wanted(self, *, running: int, waiting: int) -> int:
        """How many to claim now; 0: none yet."""
        ahead = self.ahead
        if waiting > max(ahead // 3, ahead - self._batch) or (waiting and running + waiting < self._concurrency):
            return 0
        return max(0, min(self._batch, self._concurrency + ahead - running - waiting))

    @property
    def ahead(self) -> int:
        """How many to hold beyond those that run."""
        if self._average_ms is None:
            return 0
        by_took = self._concurrency * AHEAD_MS / max(self._average_ms, 0.1)
        by_gap = by_took if self._gap_ms is None else AHEAD_MS / max(self._gap_ms, 0.01)
        return min(self._most, int(by_took), int(by_gap))
