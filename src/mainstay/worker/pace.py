"""How many jobs an engine holds beyond those it runs. Pure.

Holding a few keeps it busy while the next claim is on its way; holding many keeps them from workers that are free.
So it holds what it gets through in a tenth of a second: none when jobs are slow, a batch and a half when they are
quick, so that there is work left while the next batch is being claimed.
"""

from __future__ import annotations

AHEAD_MS = 100.0
#: how much a new duration counts against all before it
_WEIGHT = 0.1


class Pace:
    """Fed with how long jobs took; asked how many to hold, and whether now is the time to claim.

    >>> pace = Pace(concurrency=10, batch=100)
    >>> pace.wanted(running=0, waiting=0), pace.wanted(running=10, waiting=0)
    (10, 0)
    >>> for _ in range(100): pace.finished(1)
    >>> pace.wanted(running=10, waiting=0), pace.wanted(running=10, waiting=100), pace.wanted(running=10, waiting=20)
    (100, 0, 100)
    """

    def __init__(self, *, concurrency: int, batch: int) -> None:
        self._concurrency = concurrency
        self._batch = batch
        self._most = batch + batch // 2
        self._average_ms: float | None = None

    def finished(self, took_ms: float) -> None:
        average = self._average_ms
        self._average_ms = took_ms if average is None else average + _WEIGHT * (took_ms - average)

    def stuck(self) -> None:
        """What was claimed ahead could not begin: the jobs that run are slow, whatever those before them were."""
        self._average_ms = self._concurrency * AHEAD_MS * 2

    def wanted(self, *, running: int, waiting: int) -> int:
        """How many to claim now; 0: none yet."""
        ahead = self.ahead
        if waiting > ahead // 3 or (waiting and running + waiting < self._concurrency):
            return 0
        return max(0, min(self._batch, self._concurrency + ahead - running - waiting))

    @property
    def ahead(self) -> int:
        """How many to hold beyond those that run."""
        if self._average_ms is None:
            return 0
        return min(self._most, int(self._concurrency * AHEAD_MS / max(self._average_ms, 0.1)))
