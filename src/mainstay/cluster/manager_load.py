"""How loaded a manager is: how late its event loop runs, and how much of a core and of the memory it uses.

A manager works in one event loop, so one core is all that it can use. Other programs on its machine show in the delay
of the loop, and not in its own use of the processor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from ..bus import OverloadLevel
from .node_health import LATENCIES_S, SHARES, OverloadState, next_overload

#: between two samples
EVERY_S = 1.0
_OWN, _MEMORY = Path("/proc/self/statm"), Path("/proc/meminfo")
_PAGE_BYTES = 4096

LoadCause = Literal["delay", "cpu", "memory"]


class LoadSample(NamedTuple):
    """One look at a manager."""

    cpu: float
    """share of one core that its event loop used since the last look"""
    memory: float
    """share of the memory that it can have that it uses"""
    late_s: float
    """how late its event loop ran"""

    @property
    def cause(self) -> LoadCause:
        """Which of the three is the worst."""
        worst = {
            "delay": _steps(self.late_s, LATENCIES_S),
            "cpu": _steps(self.cpu, SHARES),
            "memory": _steps(self.memory, SHARES),
        }
        found: LoadCause = max(("delay", "cpu", "memory"), key=lambda each: worst[each])
        return found

    @property
    def text(self) -> str:
        """The sample for people.

        >>> LoadSample(cpu=0.91, memory=0.02, late_s=0.013).text
        'its event loop is 13 ms late and uses 91 % of a core, and it uses 2 % of the memory that it can have'
        """
        late = f"its event loop is {self.late_s * 1000:.0f} ms late and uses {self.cpu * 100:.0f} % of a core"
        return f"{late}, and it uses {self.memory * 100:.0f} % of the memory that it can have"


class OwnLoad:
    """Reads the processor that this thread and the memory that this process uses. Where the system does not show the
    memory, it counts as 0."""

    def __init__(self) -> None:
        self._used_s, self._at_s = time.thread_time(), time.monotonic()

    def sample(self, late_s: float) -> LoadSample:
        """The share of a core is that since the last sample."""
        used_s, at_s = time.thread_time(), time.monotonic()
        spent_s = at_s - self._at_s
        cpu = (used_s - self._used_s) / spent_s if spent_s > 0 else 0.0
        self._used_s, self._at_s = used_s, at_s
        return LoadSample(min(1.0, max(0.0, cpu)), _memory_share(), late_s)


class ManagerLoad:
    """Samples the load each second, and tells the level. A service: `start`, then `stop`.

    >>> load = ManagerLoad()
    >>> for late_s in (0.6, 0.0, 0.6, 0.7, 0.9):
    ...     load.take(LoadSample(0.1, 0.1, late_s))
    >>> load.level
    'stressed'
    """

    def __init__(
        self,
        *,
        sample: Callable[[float], LoadSample] | None = None,
        on_change: Callable[[OverloadLevel, LoadSample], None] = lambda _level, _sample: None,
        every_s: float = EVERY_S,
    ) -> None:
        """`sample` makes a sample, given how late the event loop runs; by default from what this process uses.
        `on_change` gets each new level, and the sample that made it."""
        self._sample = sample or OwnLoad().sample
        self._on_change = on_change
        self._every_s = every_s
        self._state = OverloadState()
        self._task: asyncio.Task[None] | None = None

    @property
    def level(self) -> OverloadLevel:
        return self._state.level

    def take(self, sample: LoadSample) -> None:
        """Judge one more sample."""
        before = self._state.level
        self._state = next_overload(self._state, cpu=sample.cpu, memory=sample.memory, latency_s=sample.late_s)
        if self._state.level != before:
            self._on_change(self._state.level, sample)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="mainstay manager load")

    async def stop(self) -> None:
        """Sample no more. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self._every_s
            await asyncio.sleep(self._every_s)
            self.take(self._sample(max(0.0, loop.time() - due_s)))


def _steps(value: float, limits: tuple[float, ...]) -> int:
    return sum(value >= limit for limit in limits)


def _memory_share() -> float:
    """The memory of this process, as a share of that and of what is still available."""
    try:
        own = int(_OWN.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
        lines = _MEMORY.read_text(encoding="ascii").splitlines()
    except (OSError, IndexError, ValueError):
        return 0.0
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    return own / (own + free) if free else 0.0


__all__ = ["EVERY_S", "LoadCause", "LoadSample", "ManagerLoad", "OwnLoad"]
