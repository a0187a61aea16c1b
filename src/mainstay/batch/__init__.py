"""Batch jobs: many units of one study, done when their outputs are present, and resumed where outputs are missing.

Layer: a kind of job, above the worker. Users start from `@app.batch`, `app.submit_batch` and `grid`. `kind` declares
the parts of the package; `study` is the declaration of a user, `driver` advances a submitted batch, `service` has the
operations on it. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .app_methods import BatchMethods
    from .handle import BatchRun
    from .parameter_grid import grid
    from .service import BatchService, BatchStatus, ResumeOutcome, UnitToRun
    from .spec import Spec, UnitCounts
    from .study import Aggregate, Batch, BatchOptions
    from .unit_results import UnitResult
    from .validation_result import OutputStatus, Validation

__all__ = [
    "Aggregate",
    "Batch",
    "BatchMethods",
    "BatchOptions",
    "BatchRun",
    "BatchService",
    "BatchStatus",
    "OutputStatus",
    "ResumeOutcome",
    "Spec",
    "UnitCounts",
    "UnitResult",
    "UnitToRun",
    "Validation",
    "grid",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".app_methods": "BatchMethods",
        ".service": "BatchService ResumeOutcome BatchStatus UnitToRun",
        ".validation_result": "OutputStatus Validation",
        ".handle": "BatchRun",
        ".unit_results": "UnitResult",
        ".parameter_grid": "grid",
        ".spec": "Spec UnitCounts",
        ".study": "Aggregate Batch BatchOptions",
    },
)
