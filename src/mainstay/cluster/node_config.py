"""How the worker of a node runs: what `mainstay node join` passes to it."""

from __future__ import annotations

import msgspec

from ..worker import WorkerOptions


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the worker of a node runs."""

    url: str
    """of the cluster"""
    options: WorkerOptions
    incarnation: str
    """drawn at each start"""
    parent: int
    """the process it dies with"""
    cores: int = 0
    """0: all processors of the machine"""
    digest: str = ""
    """of the app"""


__all__ = ["NodeConfig"]
