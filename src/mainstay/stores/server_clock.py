"""The server's time as known here.

What many machines share is judged by one clock, the server's. A process that needs it between two answers reckons from
the last ones with its own steady clock. The machine's wall clock never enters: it may be an hour off.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: how far two machines' clocks may drift apart: 0.1 ms a second. Ordinary ones keep within a tenth of it
_DRIFT = 1e-4


class _Reading(msgspec.Struct, frozen=True):
    """One answer: at `steady_ms` here it was `server_ms` there, give or take `error_ms`."""

    server_ms: float
    steady_ms: float
    error_ms: float

    def at(self, steady_ms: float) -> float:
        return self.server_ms + steady_ms - self.steady_ms

    def error_at(self, steady_ms: float) -> float:
        return self.error_ms + (steady_ms - self.steady_ms) * _DRIFT


def steady_ms() -> float:
    """Steady time of this machine, for `ServerClock.heard`; it goes on while the machine sleeps."""
    return time.clock_gettime_ns(_STEADY) / 1e6


class ServerClock:
    """A clock that follows a server's. Leases and due times are both judged by it.

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
        """how far the server is ahead of `steady`, by the best reading: read with every job that begins or ends"""

    def heard(self, server_ms: float, *, sent: float, received: float) -> None:
        """The server said its time between `sent` and `received` (of `steady`).

        The answer that took the shortest is the best one, but it ages: the clocks drift apart. One that contradicts it
        means that the server's clock was set, or that another server answers now.
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
        assert self._ahead_ms is not None, "a store hears its server's time before it is given out"
        return int(self.steady() + self._ahead_ms)

    lease_ms = now_ms
