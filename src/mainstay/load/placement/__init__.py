"""Placement of runs on nodes: which run gets which cores, and what the placement leader does about its slices.

Start from `allocate` and `decide`, which are pure, and `RunPlacementDuty`, which reads and writes. Nothing here needs
the extra of load tests: a manager places runs also where it is not installed.
"""

from __future__ import annotations

from .allocation import Allocation, CoreWait, HeldCores, RunRequest, SliceCores, allocate
from .core_pools import CoreNode
from .decisions import NodePool, PlacedRun, PlacedSlice, core_nodes, decide, node_pool
from .duty import RunPlacementDuty
from .spec import CoreDemand, OnLoss, PoolShare, RunDemand, SliceCall, slice_id, slice_unit
from .words import demand_problem

__all__ = [
    "Allocation",
    "CoreDemand",
    "CoreNode",
    "CoreWait",
    "HeldCores",
    "NodePool",
    "OnLoss",
    "PlacedRun",
    "PlacedSlice",
    "PoolShare",
    "RunDemand",
    "RunPlacementDuty",
    "RunRequest",
    "SliceCall",
    "SliceCores",
    "allocate",
    "core_nodes",
    "decide",
    "demand_problem",
    "node_pool",
    "slice_id",
    "slice_unit",
]
