"""Identifies the running system: steady clocks of another boot or machine cannot be compared with ours."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """The id of this boot of this machine; "unknown" if the system does not have one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
