"""A timer that is right to a fraction of a millisecond.

The loops' own timers are rounded to whole milliseconds, and at 2,000 arrivals a second that is two of them: the
schedule would be late by more than many a server takes to answer. And the delays of a target are meant to be known. The
kernel has a timer that is a file; the standard library knows it from Python 3.13 on. Where there is none, the loop's
own is used.
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
    """Calls a function at a time of `time.perf_counter`; one time at a time, the last that was set."""

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
        # an absolute time of zero would switch it off; one that has passed rings at once
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
