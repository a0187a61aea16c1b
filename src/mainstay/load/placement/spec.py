"""What placement stores and reads about a run on nodes: its demand of cores, and the payload of its slices.

A leader of placement may run where the extra of load tests is not installed, so this module imports nothing of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

#: what happens when a slice is lost under load
OnLoss = Literal["replace", "restart", "fail", "continue"]
#: how much of the cores of the pool a run may get
PoolShare = Literal["low", "normal", "high", "exclusive", "auto"]


class CoreDemand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many cores a run needs, and on which nodes. One generator process runs on each core."""

    nodes: int | None = None
    """spread over exactly this many nodes; None: over as few as have the cores"""
    processes: int | None = None
    """exactly this many cores; None: what its share of the pool gives, `most` at most"""
    most: int = 1
    """more processes would have nothing to do: there are no more users"""
    share: PoolShare = "auto"
    labels: Mapping[str, str] = {}
    """only nodes with all of these labels"""


class RunDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What placement reads of the payload of a run: a part of `load.fleet.spec.FleetOptions`."""

    demand: CoreDemand
    code: str = ""
    modules: Mapping[str, str] = {}
    on_loss: OnLoss = "replace"


class SliceCall(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a slice: what its node must know before the leader speaks to it."""

    job: str
    round: int
    """which start of the job it belongs to: 1, and one more after each failed attempt"""
    number: int
    """of the slice, from 0"""
    of: int
    """how many slices there are"""
    cores: int
    """generator processes of this slice"""
    code: str = ""
    modules: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    node: str = ""
    """where its cores were free when the run was placed; it may be assigned to another one"""


def slice_unit(round_: int, number: int) -> str:
    """The name of a slice within its job.

    >>> slice_unit(1, 3)
    'slice/1/3'
    """
    return f"slice/{round_}/{number}"


def slice_id(job_id: str, round_: int, number: int) -> str:
    """The id of the row of a slice. It follows from these alone, so a second leader creates no second row.

    >>> slice_id("018bcfe5-6800-7000-8000-000000000001", 1, 0)
    '018bcfe5-6800-767f-a46c-4c2a2dc9afa9'
    """
    drawn = hashlib.sha256(f"{slice_unit(round_, number)} of {job_id}".encode()).hexdigest()
    # of the same millisecond as the job, so that it sorts with it
    return f"{job_id[:15]}{drawn[:3]}-a{drawn[3:6]}-{drawn[6:18]}"


__all__ = ["CoreDemand", "OnLoss", "PoolShare", "RunDemand", "SliceCall", "slice_id", "slice_unit"]
