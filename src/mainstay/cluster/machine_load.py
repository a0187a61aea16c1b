"""How busy this machine is: the share of its processors and of its memory in use."""

from __future__ import annotations

from pathlib import Path

_STAT, _MEMORY = Path("/proc/stat"), Path("/proc/meminfo")


class MachineLoad:
    """Reads the load since the last reading. Where the system does not show it, the load is 0."""

    def __init__(self) -> None:
        self._busy, self._total = _processor_times()

    def read(self) -> tuple[float, float]:
        """The shares of processor time and memory in use, each from 0 to 1."""
        busy, total = _processor_times()
        spent = total - self._total
        cpu = (busy - self._busy) / spent if spent > 0 else 0.0
        self._busy, self._total = busy, total
        return round(min(1.0, max(0.0, cpu)), 3), round(_memory_used(), 3)


def _processor_times() -> tuple[int, int]:
    try:
        words = _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    except (OSError, IndexError):
        return 0, 0
    times = [int(word) for word in words]
    total = sum(times)
    return total - times[3] - times[4], total


def _memory_used() -> float:
    try:
        lines = _MEMORY.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    found = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if rest}
    total = found.get("MemTotal", 0)
    return 1 - found.get("MemAvailable", total) / total if total else 0.0


__all__ = ["MachineLoad"]
