"""What answers about batches look like. Needs no server: the client reads them by the same types."""

from __future__ import annotations

import msgspec

from ...web.api.job_responses import AdviceView
from ..service import OutputStatus, ResumeOutcome, UnitToRun
from ..spec import UnitCounts
from ..validation_result import Validation


class TallyView(UnitCounts, frozen=True, kw_only=True):
    """How units stand."""

    done: int


class UnitTallyView(TallyView, frozen=True, kw_only=True):
    """How the units of the study stand."""

    total: int


class OutputCounts(msgspec.Struct, kw_only=True):
    expected: int
    there: int


class BatchStatusView(msgspec.Struct, kw_only=True):
    """How a batch stands, by the store of jobs alone."""

    id: str
    name: str
    status: str
    settled: bool
    reason: str | None
    version: int
    at_ms: int
    group: str
    """what is at work: the units, or an aggregation by its name"""
    planned: bool
    sets: int
    units: UnitTallyView
    aggregations: dict[str, TallyView]
    outputs: OutputCounts
    waits: str
    """what its driver waits for, in words"""
    validation: Validation | None
    runner: str
    resumed_from: str | None
    advice: list[AdviceView]


class OutputPage(msgspec.Struct, kw_only=True):
    """Some outputs, in the order of the manifest."""

    place: str
    outputs: list[OutputStatus]
    next: int | None
    """the `start` of the next page; null: these were the last"""


class ResumeResult(ResumeOutcome, frozen=True, kw_only=True):
    """What became of it, or would."""

    dry_run: bool = False
    sample: tuple[UnitToRun, ...] = ()
    """of a dry run: the first of the units, and why"""
