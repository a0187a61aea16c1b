"""The server's time, as this process knows it.

Many machines share leases and due times, so one clock decides: the server's. Between two answers of the server, a
process extrapolates with its own steady clock. It never uses the machine's wall clock, which may be an hour off.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: the assumed drift between the clocks of two machines: 0.1 ms a second. It is usually below a tenth of that
_DRIFT = 1e-4


class _Reading(msgspec.Struct, frozen=True):
    """One answer: at `steady_ms` here, the server's time was `server_ms`, plus or minus `error_ms`."""

    server_ms: float
    steady_ms: float
    error_ms: float

    def at(self, steady_ms: float) -> float:
        return self.server_ms + steady_ms - self.steady_ms

    def error_at(self, steady_ms: float) -> float:
        return self.error_ms + (steady_ms - self.steady_ms) * _DRIFT


def steady_ms() -> float:
    """The steady time of this machine, for `ServerClock.heard`. It continues while the machine sleeps."""
    return time.clock_gettime_ns(_STEADY) / 1e6


class ServerClock:
    """A clock that follows the server's, for both leases and due times.

    >>> steady = iter([1000.0, 1500.0]).__next__
    >>> clock = ServerClock(steady)
    >>> clock.heard(5_000_000, sent=990.0, received=1000.0)
    >>> clock.now_ms(), clock.now_ms()
    (5000005, 5000505)
    """

    def __init__(self, steady: Callable[[], float] = steady_ms) -> None:
        self.steady = steady
        self._best: _Reading | None = None
        self._ahead_ms: float | None = None
        """how far the server is ahead of `steady`, by the best reading; cached, because every start and end of a job
        needs it"""

    def heard(self, server_ms: float, *, sent: float, received: float) -> None:
        """Take a reading: the server gave its time between `sent` and `received` (of `steady`).

        The answer with the shortest round trip is the best, but it ages, because the clocks drift apart. An answer that
        contradicts it means that the server's clock was set, or that another server answers now.
        """
        half = (received - sent) / 2
        new = _Reading(server_ms, received - half, half)
        best = self._best
        if best is not None:
            error = best.error_at(received)
            contradicted = abs(best.at(new.steady_ms) - new.server_ms) > error + new.error_ms + 1
            if new.error_ms > error and not contradicted:
                return
        self._best = new
        self._ahead_ms = new.server_ms - new.steady_ms

    def now_ms(self) -> int:
        assert self._ahead_ms is not None, "a store reads its server's time before it is used"
        return int(self.steady() + self._ahead_ms)

    lease_ms = now_ms
