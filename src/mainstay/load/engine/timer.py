"""A timer that is accurate to a fraction of a millisecond.

Event loops round their timers to whole milliseconds. At 2,000 arrivals per second that is two arrivals: the schedule
would be late by more than many servers take to answer. The delays of a target must be exact, too. So this uses Linux's
timerfd, which the standard library has from Python 3.13 on; elsewhere, the timer of the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable

_MONOTONIC = 1
_ABSOLUTE = 1
_NONBLOCK = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class _Spec(ctypes.Structure):
    _fields_ = (("every_s", ctypes.c_long), ("every_ns", ctypes.c_long), ("s", ctypes.c_long), ("ns", ctypes.c_long))


class Timer:
    """Calls a function at a time of `time.perf_counter`. Setting a new time replaces the last one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._fd = -1 if self._libc is None else self._libc.timerfd_create(_MONOTONIC, _NONBLOCK)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._rung)

    def set(self, at: float) -> None:
        if self._fd < 0 or self._libc is None:
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_later(max(0.0, at - time.perf_counter()), self._ring)
            return
        # an absolute time of zero would disarm it; a time in the past fires at once
        whole, part = divmod(max(1, round(at * 1e9)), 1_000_000_000)
        spec = _Spec(0, 0, whole, part)
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(spec), None)

    def _rung(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        self._ring()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
