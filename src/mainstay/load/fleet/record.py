"""What a leader of a fleet must not forget: stored before it acts, and read by its successor."""

from __future__ import annotations

import msgspec

from ..engine.messages import Values, WorkflowsDone
from ..stats.model import SliceReport, Window


class GoRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An order to go. It is stored before it is sent, so that a successor knows whether there may be load."""

    go: int
    """which one of the run, from 1"""
    workflows: list[str]
    wall: float
    """about the agreed instant, in seconds since 1970, by the clock of the leader that chose it; slices know more"""
    tokens: list[int]
    """of the slices that it was meant for, by number; a replacement takes the place of what it replaces. 0: none, the
    slice was lost before"""
    nodes: list[str]
    """that run these assignments"""
    begin_s: list[float] = []
    """the time of the plan at which each of these assignments begins; empty: all at its start"""
    void: bool = False
    """no slice has begun it, and none can any more"""


class LostPart(msgspec.Struct, frozen=True, kw_only=True):
    """What was received of an assignment that was lost under load. Nothing else has these numbers."""

    go: int
    report: SliceReport
    total: Window | None
    """the sum of its windows, without those of steps once the go is over; None: none had arrived"""
    begun: dict[str, int] = {}
    """started iterations by workflow"""


class GoEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A go that is over in all slices. The processes that know more may be gone."""

    go: int
    reports: list[WorkflowsDone]
    """of all processes, as one"""
    total: Window | None
    """the sum of all windows, those of lost assignments too"""
    slices: list[SliceReport]
    """of this go and of those before it: the newest end has them"""


class FleetRecord(msgspec.Struct, kw_only=True):
    """The record of a run on nodes. A successor leads the run again from its beginning: what slices have done before,
    they answer from memory; what is here needs no answer."""

    round: int = 1
    """which start of the job"""
    gos: list[GoRecord] = []
    lost: list[LostPart] = []
    received: list[LostPart] = []
    """of the running go: what the leader has received of each assignment, as of the last time that it was noted. If an
    assignment is lost while there is no leader, this is all that is known of it"""
    ends: list[GoEnd] = []
    asked: dict[str, tuple[int, int]] = {}
    """by order (`set_up/1`, `collect/1`, `tear_down/0/1`): the slice and the token that it was sent to. Stored before
    it is sent: a successor asks the same one, which executes it once"""
    answers: dict[str, Values] = {}
    """by order: what was executed, and what it returned"""
    ending: str = ""
    """why a leader has stopped the load: something was lost that ends the run"""
    notes: list[str] = []
    """what a reader of the result must know, besides losses"""
    reduced: int = 0
    """how much less exact the sums of ended loads are, because the record was too large; 0: they are as they were"""


__all__ = ["FleetRecord", "GoEnd", "GoRecord", "LostPart"]
