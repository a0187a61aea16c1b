"""The job queues of the benchmark, one `*_app` module each: its tasks, and how to submit them.

An app module runs in its system's own environment, so it imports that system, the standard library and `slots`, and
nothing else. It is read by two processes: the worker, which wants its tasks, and `producer`, which wants a `Peer`.
What the driver must know without importing any of them (commands, versions, sizes) is in `catalog`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol


class Peer(Protocol):
    """What an app module offers its producer. Every function may be `async`.

    A module may also have `submit_many(n)`, if its system takes many jobs in one call, and `settled() -> int`, if its
    system can say how many jobs are done and committed.
    """

    def reset(self) -> Awaitable[None] | None:
        """Connect if need be, and forget every job. No worker runs meanwhile."""

    def submit_one(self, i: int) -> Awaitable[object] | object:
        """Submit the task that marks slot `i`."""

    def submit_sleeper(self, tag: str, seconds: float) -> Awaitable[object] | object:
        """Submit the task that notes its start under `tag`, then takes `seconds`."""
