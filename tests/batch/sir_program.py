"""The study of examples/sir.py as a program of workers that are killed: each simulation leaves a line, and the table
waits for a file to appear.

Lines are appended with one write each, so that a kill leaves whole ones.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from examples import sir
from mainstay import Aggregate, App, Batch, Outputs
from mainstay.batch import UnitResult

FOLDER = Path(os.environ.get("CHAOS_FOLDER", "."))
#: the table is made when this is there
GATE = "go"


def trace(what: str) -> None:
    handle = os.open(FOLDER / "ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{what}\n".encode())
    finally:
        os.close(handle)


def table(sets: list[UnitResult], out: Outputs) -> None:
    trace("table")
    while not (FOLDER / GATE).exists():
        time.sleep(0.01)
    sir.table(sets, out)


def program(url: str, outputs: str | None) -> tuple[App, Batch]:
    """The app and its study: for the workers, and for the test that submits."""
    app = App(url, outputs=outputs)

    @app.batch(
        name="sir",
        outputs={"course": "course.csv"},
        aggregate=sir.spread,
        overall=Aggregate(table, outputs={"table": "table.csv"}),
        version="1",
        # those of a killed worker are not to blame for its death
        crash_budget=50,
    )
    def simulate(params: sir.Params, seed: int, out: Outputs) -> None:
        trace(f"beta={params.beta}_gamma={params.gamma}-s{seed}")
        sir.simulate(params, seed, out)

    return app, simulate


app, _ = program(os.environ.get("MAINSTAY_STORE", "memory:"), os.environ.get("SIR_OUTPUTS"))
