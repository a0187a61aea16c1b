"""The worlds by name, and one seed in one of them."""

from __future__ import annotations

import logging

from .cluster import BigClusterWorld, ClusterWorld
from .load_cluster import LoadClusterWorld
from .nodes import BigNodesWorld, NodesWorld
from .runs import RunResult, World, simulate
from .supervised import SupervisedWorld
from .workers import WorkersWorld

WORLDS: dict[str, type[World]] = {
    "workers": WorkersWorld,
    "supervised": SupervisedWorld,
    "nodes": NodesWorld,
    "cluster": ClusterWorld,
    "runs": LoadClusterWorld,
    "big-nodes": BigNodesWorld,
    "big-cluster": BigClusterWorld,
}
#: the worlds of a size: small ones for every change, big ones for a night
SIZES = {"small": ("workers", "supervised", "nodes", "cluster", "runs"), "big": ("big-nodes", "big-cluster")}
#: one seed in this number runs twice, and must give the same trace
TWICE = 20


def run_seed(world: str, seed: int) -> RunResult:
    """Run one seed; now and then twice, to see that the same happens. Called in a process of its own."""
    logging.disable(logging.CRITICAL)  # workers warn of every fault
    result = simulate(WORLDS[world], seed)
    if seed % TWICE == 0 and not result.failed:
        again = simulate(WORLDS[world], seed)
        if again.digest != result.digest:
            result.error = f"two runs differ: {result.digest} and {again.digest}; something is not decided by the seed"
    return result
