"""Batch jobs: many units of one study, done when their outputs are there, and resumed where they are not.

Layer: a kind of job, beside tasks, above the worker. Users start from `@app.batch`, `app.submit_batch` and `grid`.
`kind` declares what belongs to it; `study` is what a user declares, `driver` what goes on with a submitted batch,
`service` what people do to one. Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .app_methods import BatchMethods
    from .handle import BatchRun
    from .parameter_grid import grid
    from .service import Desk, Output, Resumed, Status, ToRun
    from .spec import Spec, Tallied
    from .study import Aggregate, Batch, BatchOptions
    from .unit_results import Made
    from .validation_result import Lacking, Validation

__all__ = [
    "Aggregate",
    "Batch",
    "BatchMethods",
    "BatchOptions",
    "BatchRun",
    "Desk",
    "Lacking",
    "Made",
    "Output",
    "Resumed",
    "Spec",
    "Status",
    "Tallied",
    "ToRun",
    "Validation",
    "grid",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".app_methods": ("BatchMethods",),
        ".service": ("Desk", "Output", "Resumed", "Status", "ToRun"),
        ".validation_result": ("Lacking", "Validation"),
        ".handle": ("BatchRun",),
        ".unit_results": ("Made",),
        ".parameter_grid": ("grid",),
        ".spec": ("Spec", "Tallied"),
        ".study": ("Aggregate", "Batch", "BatchOptions"),
    },
)
