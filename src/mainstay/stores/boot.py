"""Which run of which machine this is: steady clocks of another one mean nothing here."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """Tells one run of the machine from the next, and from other machines; "unknown" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
