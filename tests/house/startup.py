"""What the start of the command line costs."""

from __future__ import annotations

import os
import sys


def cpu_seconds_of_help(runs: int = 5) -> float:
    """CPU seconds of `mainstay --help`, user and system, the least of several runs."""
    return min(_cpu_seconds() for _ in range(runs))


def _cpu_seconds() -> float:
    quiet = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1)]
    command = [sys.executable, "-m", "mainstay", "--help"]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"mainstay --help ended with status {status}")
    return usage.ru_utime + usage.ru_stime
