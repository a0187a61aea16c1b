"""A load run on nodes, as it is stored: the payload of its job, and that of its slices."""

from __future__ import annotations

from collections.abc import Mapping

from ..kind import SLICE
from ..placement import CoreDemand, OnLoss, PoolShare, SliceCall, slice_id, slice_unit
from ..plan import LoadOptions
from ..run_spec import RunSpec


class FleetOptions(LoadOptions, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a run on nodes. Whatever reads `LoadOptions` can read it."""

    demand: CoreDemand
    spec: RunSpec
    code: str = ""
    """digest of the bundle with the test; empty: nodes find its modules installed"""
    modules: Mapping[str, str] = {}
    """without a bundle: the digests of the top-level modules of the test, as the submitter has them installed"""
    on_loss: OnLoss = "replace"


__all__ = ["SLICE", "CoreDemand", "FleetOptions", "OnLoss", "PoolShare", "SliceCall", "slice_id", "slice_unit"]
