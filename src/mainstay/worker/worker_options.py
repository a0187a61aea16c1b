"""How a worker runs, as its command line says."""

from __future__ import annotations

import msgspec

#: the URL of the store for the engines of a node that has joined a cluster. In the environment, because it may contain
#: a password, and other users of the machine can read command lines
NODE_STORE = "MAINSTAY_NODE_STORE"


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker runs."""

    target: str
    """`module:app`"""
    name: str
    queues: tuple[str, ...] = ()
    """empty: the queues of the program"""
    concurrency: int | None = None
    """None: as the settings say"""
    processes: int = 1
    node: str = ""
    """the name of the node that it is; empty: it is none, and runs no placed work"""
    labels: dict[str, str] = {}
    """the labels of the node"""
    cores: int = 0
    """the cores of the node that slices of load tests may use; 0: it runs no slices"""
    joined: bool = False
    """it has joined a cluster: its store is the one in the environment variable `NODE_STORE`, whatever the app names"""
    bundle: str = ""
    """the digest of the bundle that its program is from; empty: the program is installed"""
    cache: str = ""
    """the folder for the bundles of load tests; empty: a folder in the state of this machine. Nodes may share it"""
    cache_bytes: int = 2048 * 1024 * 1024
    """above this the bundles that were not used for the longest time are removed"""
    cache_age_s: float = 30 * 86_400.0
    """bundles that were not used for this time are removed"""
    grace_s: float = 30.0
    """how long jobs may go on after the first request to stop"""
    output: str = ""
    """the folder that keeps what its jobs print; empty: none"""
    echo: bool = True
    """what jobs print is also printed by their processes, as without such a folder"""
    log_level: str = "info"
    json_logs: bool = False
