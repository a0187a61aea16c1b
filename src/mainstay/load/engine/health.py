"""The health of a generator process: an overloaded generator measures itself, not the target."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..stats.model import Health

#: how often the delay of the event loop is measured
_TICK_S = 0.02
#: how often the more expensive numbers are read
_SLOW_S = 2.0
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class ThreadWait(NamedTuple):
    """How long this thread could not run since it started, in seconds."""

    queued_s: float | None
    """ready to run while other programs had the cores; None if the system does not report it"""
    throttled_s: float
    """its control group had used up its CPU time; over all cores, and 0 if the system does not report it"""


class HealthMonitor:
    """Measures the event loop and the process; used in the thread of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read_waits: Callable[[], ThreadWait] | None = None) -> None:
        """`read_waits` returns how long the thread could not run; by default, the system reports it."""
        self._loop = loop
        self._read_waits = read_waits or ThreadWaitReader().read
        self._waits = self._read_waits()
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
        # timers of the loop are accurate to a millisecond
        self._lag = max(self._lag, time.perf_counter() - self._due - 0.001)
        self.start()

    def take(self) -> Health:
        """The health since the last call."""
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        passed = wall_s - self._wall_s
        used = (cpu_s - self._cpu_s) / passed if passed > 0 else 0.0
        lag = max(self._lag, wall_s - self._due) if self._handle is not None else self._lag
        self._cpu_s, self._wall_s, self._lag = cpu_s, wall_s, 0.0
        before, now = self._waits, self._read_waits()
        self._waits = now
        throttled_s = max(0.0, now.throttled_s - before.throttled_s)
        queued_s = max(0.0, (now.queued_s or 0.0) - (before.queued_s or 0.0))
        if wall_s - self._slow_s > _SLOW_S:
            self._slow_s = wall_s
            self._memory, self._files = memory_bytes(), open_files()
        return Health(
            lag=max(0.0, lag),
            cpu=min(1.0, used),
            # a throttled thread may be reported as queued, too: that is one wait, not two
            waited=max(queued_s, min(throttled_s, passed)),
            throttled=throttled_s,
            memory=self._memory,
            files=self._files,
            files_limit=self._limit,
        )


class ThreadWaitReader:
    """Reads from Linux how long this thread was ready but did not run."""

    def __init__(self, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> None:
        self._queued = proc / "thread-self" / "schedstat"
        self._throttled = _quotas(proc / "self" / "cgroup", groups)

    def read(self) -> ThreadWait:
        return ThreadWait(_queued_s(self._queued), sum(map(_throttled_s, self._throttled)))


def _quotas(own: Path, groups: Path) -> Sequence[Path]:
    """The CPU statistics of the control group (version 2) of this process, and of its parents."""
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                group = groups / line.removeprefix("0::").lstrip("/")
                inside = [group, *(one for one in group.parents if one.is_relative_to(groups))]
                return [one / "cpu.stat" for one in inside if (one / "cpu.stat").is_file()]
    return ()


def _queued_s(path: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(path.read_bytes().split()[1]) / 1e9
    return None


def _throttled_s(path: Path) -> float:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_bytes().splitlines():
            if line.startswith(b"throttled_usec "):
                return int(line.split()[1]) / 1e6
    return 0.0


def memory_bytes() -> int:
    """Resident memory of this process; 0 if the system does not report it."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE
    return 0


def open_files() -> int:
    """File descriptors of this process; 0 if the system does not report it."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0
