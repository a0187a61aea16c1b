"""Many exact delays with one timer."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

from ..engine.timer import Timer

_now = time.perf_counter


class Timers:
    """Calls functions at times of `time.perf_counter`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._timer = Timer(loop, self._fire)
        self._armed = math.inf

    def at(self, due: float, call: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._heap, (due, next(self._order), call, args))
        if due < self._armed:
            self._arm(due)

    def close(self) -> None:
        """Cancel all pending calls."""
        self._heap.clear()
        self._timer.close()

    def _arm(self, due: float) -> None:
        self._armed = due
        self._timer.set(due)

    def _fire(self) -> None:
        heap = self._heap
        # a called function may add delays: the timer is set below, once for all of them
        self._armed = -math.inf
        try:
            # by the current time: a delay that ends during this loop need not wait for another round
            while heap and heap[0][0] <= _now():
                _, _, call, args = heapq.heappop(heap)
                call(*args)
        finally:
            self._armed = math.inf
            if heap:
                self._arm(heap[0][0])
