"""Delays that end on time.

The timers of event loops count in whole milliseconds: uvloop rounds to the nearest one, asyncio up to the next. That is
too coarse for a target whose latencies are meant to be known. On Linux a timer of the kernel (timerfd) wakes the loop
instead, a few hundredths of a millisecond after the time that was asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import heapq
import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

_ABSTIME = 1


class Timers:
    """Calls functions at times of `time.perf_counter`, all from one alarm."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._fd = _timerfd()
        self._handle: asyncio.TimerHandle | None = None
        self._armed = float("inf")
        if self._fd >= 0:
            loop.add_reader(self._fd, self._read)

    def at(self, due: float, call: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._heap, (due, next(self._order), call, args))
        if due < self._armed:
            self._arm(due)

    def close(self) -> None:
        """What has not come due is forgotten."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _arm(self, due: float) -> None:
        self._armed = due
        if self._fd >= 0:
            _set(self._fd, due)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0.0, due - time.perf_counter()), self._fire)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        self._fire()

    def _fire(self) -> None:
        heap = self._heap
        self._armed = float("inf")
        now = time.perf_counter()
        while heap and heap[0][0] <= now:
            _, _, call, args = heapq.heappop(heap)
            call(*args)
        if heap and heap[0][0] < self._armed:
            self._arm(heap[0][0])


class _Spec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


def _timerfd() -> int:
    """Its number; -1 where there is none."""
    if not sys.platform.startswith("linux"):
        return -1
    flags = os.O_NONBLOCK | os.O_CLOEXEC
    return int(_libc().timerfd_create(time.CLOCK_MONOTONIC, flags))


def _set(fd: int, due: float) -> None:
    # perf_counter is CLOCK_MONOTONIC here; all zeros would switch the timer off
    whole = int(due)
    spec = _Spec(0, 0, whole, max(1, int((due - whole) * 1e9)))
    _libc().timerfd_settime(fd, _ABSTIME, ctypes.byref(spec), None)


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
