"""What a leader of a fleet must not forget: stored before it acts, and read by its successor."""

from __future__ import annotations

import msgspec

from ..engine.messages import Values
from ..stats.model import SliceReport, Window


class GoRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An order to go. It is stored before it is sent, so that a successor knows whether there may be load."""

    go: int
    """which one of the run, from 1"""
    workflows: list[str]
    wall: float
    """the agreed instant in seconds since 1970, by the clock of the leader that chose it"""
    tokens: list[int]
    """of the slices that it was meant for, by number"""
    void: bool = False
    """no slice has begun it, and none can any more"""


class LostPart(msgspec.Struct, frozen=True, kw_only=True):
    """What was received of an assignment that was lost under load. Nothing else has these numbers."""

    go: int
    report: SliceReport
    total: Window | None
    """the sum of its windows; None: none had arrived"""
    begun: dict[str, int] = {}
    """started iterations by workflow"""


class FleetRecord(msgspec.Struct, kw_only=True):
    """The record of a run on nodes. A successor leads the run again from its beginning: what slices have done before,
    they answer from memory; what is here needs no answer."""

    round: int = 1
    """which start of the job"""
    gos: list[GoRecord] = []
    lost: list[LostPart] = []
    answers: dict[str, Values] = {}
    """by order (`set_up/1`, `collect/1`, `tear_down`): what was executed once, and what it returned"""


__all__ = ["FleetRecord", "GoRecord", "LostPart"]
