"""How many processors this process may use: by its affinity, and by the quota of its control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def available(root: Path = Path("/")) -> int:
    """At least 1. A quota of 1.5 processors counts as 2. `root` is where `proc` and `sys` are mounted."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *(math.ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """The quotas of the group of this process and of its parents: each of them limits it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # version 2 has one tree; version 1 one for each set of controllers. In a container the path may be that of the
        # host, and the group is mounted at the top
        top = root / "sys/fs/cgroup" / controllers
        inside = PurePosixPath(path.lstrip("/"))
        for group in (inside, *inside.parents):
            quota = _quota_v1(top / group) if controllers else _quota_v2(top / group)
            if quota is not None:
                yield quota


def _quota_v2(group: Path) -> float | None:
    """`cpu.max` holds the quota, or "max", and the period."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period) if quota != "max" else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        return quota / int((group / "cpu.cfs_period_us").read_text()) if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
