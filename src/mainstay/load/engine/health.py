"""How a generator process itself is doing: what it cannot keep up with falsifies what it measures."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time

from ..stats.model import Health

#: how often the loop is looked at
_TICK_S = 0.02
#: how often what is more work to find out is looked at
_SLOW_S = 2.0
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Watch:
    """Looks at the loop it runs on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lag = 0.0
        self._cpu_s = time.process_time()
        self._wall_s = time.perf_counter()
        self._slow_s = 0.0
        self._memory = self._files = 0
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = time.perf_counter() + _TICK_S
        self._handle = self._loop.call_later(_TICK_S, self._tick)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tick(self) -> None:
        # timers of the loop are right to a millisecond
        self._lag = max(self._lag, time.perf_counter() - self._due - 0.001)
        self.start()

    def take(self) -> Health:
        """Since the last time."""
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        passed = wall_s - self._wall_s
        used = (cpu_s - self._cpu_s) / passed if passed > 0 else 0.0
        lag = max(self._lag, wall_s - self._due) if self._handle is not None else self._lag
        self._cpu_s, self._wall_s, self._lag = cpu_s, wall_s, 0.0
        if wall_s - self._slow_s > _SLOW_S:
            self._slow_s = wall_s
            self._memory, self._files = memory_bytes(), open_files()
        return Health(
            lag=max(0.0, lag), cpu=min(1.0, used), memory=self._memory, files=self._files, files_limit=self._limit
        )


def memory_bytes() -> int:
    """Resident memory of this process; 0 where that is not told."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE
    return 0


def open_files() -> int:
    """File descriptors of this process; 0 where that is not told."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0
