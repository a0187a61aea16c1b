"""How the worker of a node runs: what `mainstay node join` passes to it."""

from __future__ import annotations

import msgspec

from ..worker import WorkerOptions

#: exit code of a node's worker: it was asked to stop, and an engine had to be killed. 1 is that of an error of ours
FORCED_END = 3


class NodeBundleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The bundle that a node runs, and where it keeps bundles."""

    reference: str
    """a name, a digest or the beginning of one"""
    cache: str
    """the folder; the nodes of a machine may share one"""
    cache_bytes: int
    """above this the bundles that were not used for the longest time are removed"""
    cache_age_s: float
    """bundles that were not used for this time are removed"""


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
    bundle: NodeBundleOptions | None = None
    """None: the app is installed"""
    code: str = ""
    """the folder of the bundle, once it is there: its engines import from it before anything else"""


__all__ = ["FORCED_END", "NodeBundleOptions", "NodeConfig"]
