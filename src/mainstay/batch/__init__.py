"""Batch jobs: many units of one study, done when their outputs are there, and resumed where they are not.

Layer: a kind of job, beside tasks, above the worker. Users start from `@app.batch`, `app.submit_batch` and `grid`.
`study` is what a user declares, `driver` what goes on with a submitted batch, `desk` what people do to one.
"""

from .desk import Desk, Output, Resumed, Status, ToRun
from .findings import Lacking, Validation
from .grid import grid
from .handle import BatchRun
from .made import Made
from .spec import Spec, Tallied
from .study import Aggregate, Batch, BatchOptions

__all__ = [
    "Aggregate",
    "Batch",
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
