"""The JSON of batches in the HTTP API. Needs no server: the client decodes with the same types."""

from __future__ import annotations

import msgspec

from ...web.api import AdviceView
from ..service import ResumeOutcome, UnitToRun
from ..spec import UnitCounts
from ..validation_result import OutputStatus, Validation


class TallyView(UnitCounts, frozen=True, kw_only=True):
    """Units by state."""

    done: int


class UnitTallyView(TallyView, frozen=True, kw_only=True):
    """Units of the study by state."""

    total: int


class OutputCounts(msgspec.Struct, kw_only=True):
    expected: int
    there: int


class BatchStatusView(msgspec.Struct, kw_only=True):
    """The status of a batch, from the job store alone."""

    id: str
    name: str
    status: str
    settled: bool
    reason: str | None
    version: int
    at_ms: int
    group: str
    """the current group: "units", or the name of an aggregation"""
    planned: bool
    sets: int
    units: UnitTallyView
    aggregations: dict[str, TallyView]
    outputs: OutputCounts
    waits: str
    """what it waits for, in words"""
    validation: Validation | None
    runner: str
    resumed_from: str | None
    advice: list[AdviceView]


class OutputPage(msgspec.Struct, kw_only=True):
    """Some outputs, in the order of the manifest."""

    place: str
    outputs: list[OutputStatus]
    next: int | None
    """the `start` of the next page; null: this is the last page"""


class ResumeResult(ResumeOutcome, frozen=True, kw_only=True):
    """The outcome of a resume, or of its dry run."""

    dry_run: bool = False
    sample: tuple[UnitToRun, ...] = ()
    """the first units of a dry run, with reasons"""
