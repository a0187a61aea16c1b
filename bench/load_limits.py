"""Very many users in one process: what they take in memory, and whether each has its connection."""

from __future__ import annotations

from pathlib import Path

import msgspec

from servers import Nginx

from . import load_runs
from .load_runs import Job, RunFailed
from .peers.load.catalog import LoadSystem

SECONDS = 24
"""Enough for the last to be let in: what finds the queue of the target full is tried again after 1, 3 and 7 seconds."""
MOST_MB = 400


class Crowd(msgspec.Struct, kw_only=True):
    """One run of very many users."""

    users: int
    connections: int = 0
    """The most that were open at the target at once."""
    requests: int = 0
    failed: int = 0
    start_s: float = 0.0
    generator_mb: float = 0.0
    """Peak of the process that holds the users."""
    trouble: list[str] = []

    @property
    def met(self) -> bool:
        return self.connections >= self.users and 0 < self.generator_mb < MOST_MB


def measure(system: LoadSystem, programs: dict[str, str], target: Nginx, folder: Path, users: int) -> Crowd:
    crowd = Crowd(users=users)
    try:
        ran = load_runs.run(
            system, programs, target, folder / "crowd", Job(scenario="users", connections=users, seconds=SECONDS)
        )
    except RunFailed as error:
        crowd.trouble.append(f"{users:,} users: {error}")
        return crowd
    crowd.connections, crowd.requests, crowd.failed = ran.connections, ran.requests, ran.failed
    crowd.start_s, crowd.generator_mb = ran.start_s, ran.peak_mb
    return crowd
