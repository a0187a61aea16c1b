"""With this folder on PYTHONPATH, a process and all it starts have a wall clock that is CLOCK_OFF_S seconds off.

Python imports it before anything else. Steady clocks are left alone, as a wrong wall clock leaves them.
"""

from __future__ import annotations

import os
import time

_off_ns = int(os.environ["CLOCK_OFF_S"]) * 1_000_000_000
_right_ns = time.time_ns
_clock_ns = time.clock_gettime_ns


def _time_ns() -> int:
    return _right_ns() + _off_ns


def _gettime_ns(clock: int) -> int:
    return _clock_ns(clock) + _off_ns * (clock == time.CLOCK_REALTIME)


time.time_ns = _time_ns
time.time = lambda: _time_ns() / 1e9
time.clock_gettime_ns = _gettime_ns
time.clock_gettime = lambda clock: _gettime_ns(clock) / 1e9
