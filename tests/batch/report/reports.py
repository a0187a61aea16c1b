"""Reports of batches that never were."""

from __future__ import annotations

from typing import Any

from mainstay.batch import UnitCounts
from mainstay.batch.report.model import BatchReport, OutputSummary, SetOutcome

JOB = "01a1e488-58c6-7024-8920-ed28f4dd4807"


def outcomes(sets: list[dict[str, Any]], *, intact: int = 10) -> list[SetOutcome]:
    return [SetOutcome(params=params, intact=intact, units=10) for params in sets]


def a_report(made: list[SetOutcome], **given: Any) -> BatchReport:
    units = sum(one.units for one in made)
    whole = sum(one.intact for one in made)
    fields: dict[str, Any] = {
        "id": JOB,
        "study": "lab.sir",
        "code": "3",
        "status": "succeeded" if whole == units else "partial",
        "reason": f"{whole} of {units} outputs are present",
        "settled": True,
        "place": "s3://lab/outputs",
        "at_ms": 1_794_835_492_130,
        "submitted_ms": 1_794_835_392_130,
        "began_ms": 1_794_835_392_230,
        "ended_ms": 1_794_835_482_130,
        "took_s": 89.9,
        "rounds": 1,
        "sets": len(made),
        "total": units,
        "units": UnitCounts(made=units, succeeded=whole, failed=units - whole),
        "aggregations": {},
        "outputs": OutputSummary(source="validation", expected=units, present=whole, missing=units - whole),
        "lacking": [],
        "troubles": [],
        "outcomes": made,
        "validations": [],
    }
    return BatchReport(**{**fields, **given})
