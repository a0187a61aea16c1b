"""Two CSV tables for spreadsheets: one row per step, and one row per stretch of time and step.

`--csv run.csv` writes the steps to `run.csv`, with a row for each tag and one for all steps together, and the points to
`run-points.csv`. Times are in milliseconds, as the column names say. A value that was not measured is empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..stats.model import PHASES, Latency, Point, StepSummary, Summary, TagSummary
from ..stats.tags import tags_text

_TIMES = ("mean", "stdev", "min", "p50", "p75", "p90", "p95", "p99", "p999", "max")
_POINT_TIMES = ("p50", "p90", "p95", "p99", "max")
_STEP_HEADS = (
    "workflow",
    "step",
    "requests",
    "failed",
    "raised",
    "skipped",
    "rate_per_s",
    *(f"{name}_ms" for name in _TIMES),
    *(f"response_{name}_ms" for name in _TIMES),
    *(f"{name}_mean_ms" for name in PHASES),
    "sent_bytes",
    "received_bytes",
    *(f"ok_{name}_ms" for name in _TIMES),
)
_POINT_HEADS = ("at_s", "width_s", "workflow", "step", "users", "rate_per_s", "failed_per_s", "dropped_per_s")
#: a cell that begins with one of these is a formula for a spreadsheet
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: the name of the row of all steps
ALL = "(all)"
#: the workflow in a row of the steps with a tag
TAG = "(tag)"

Cell = str | float | int | None


def steps_csv(summary: Summary) -> str:
    """One row per step, then one per tag; the last row has all steps together."""
    rows = []
    for step in summary.steps:
        phases = [_ms(step.phases[name].mean) if name in step.phases else None for name in PHASES]
        rows.append(_step_row((step.workflow, step.step), step, step.skipped, phases))
    rows += [_step_row((TAG, tags_text([(one.tag, one.value)])), one, None) for one in summary.by_tag]
    rows.append(_step_row((ALL, ALL), summary, sum(one.skipped for one in summary.steps)))
    return _csv(_STEP_HEADS, rows)


def _step_row(
    names: tuple[str, str],
    one: Summary | StepSummary | TagSummary,
    skipped: int | None,
    phases: Sequence[Cell] = (None,) * len(PHASES),
) -> list[Cell]:
    return [
        *(*names, one.requests, one.failed, one.raised, skipped, _rounded(one.rate)),
        *_times(one.service),
        *_times(one.response),
        *phases,
        *(one.sent, one.received),
        # if nothing failed, all requests were successful
        *_times(one.ok if one.failed else one.service),
    ]


def points_csv(summary: Summary) -> str:
    """For each stretch of time a row of all steps, then one for each step."""
    heads = (
        *_POINT_HEADS,
        *(f"{name}_ms" for name in _POINT_TIMES),
        *(f"response_{name}_ms" for name in _POINT_TIMES),
    )
    return _csv(heads, (row for one in summary.points for row in _point_rows(one)))


def points_path(path: Path) -> Path:
    """The file of the points, beside that of the steps.

    >>> str(points_path(Path("out/run.csv")))
    'out/run-points.csv'
    """
    return path.with_name(f"{path.stem}-points{path.suffix}")


def _point_rows(one: Point) -> Iterable[list[Cell]]:
    when: list[Cell] = [_rounded(one.at_s), _rounded(one.width_s)]
    rates = [_rounded(value) for value in (one.rate, one.failed, one.dropped)]
    times = [_ms(getattr(of, name, None)) for of in (one, one.response) for name in _POINT_TIMES]
    yield [*when, ALL, ALL, one.users, *rates, *times]
    for name, (rate, *percentiles) in one.by_step.items():
        workflow, _, step = name.partition(".")
        step_times = [*_of_step(percentiles[:3]), *_of_step(percentiles[3:])]
        yield [*when, workflow, step, None, _rounded(rate), None, None, *step_times]


def _of_step(percentiles: Sequence[float | None]) -> list[Cell]:
    """The p50, p95 and p99 of a step, if a point has them, in the columns of `_POINT_TIMES`."""
    p50, p95, p99 = percentiles or (None, None, None)
    return [_ms(p50), None, _ms(p95), _ms(p99), None]


def _times(latency: Latency | None) -> list[Cell]:
    return [_ms(getattr(latency, name)) if latency is not None and latency.count else None for name in _TIMES]


def _ms(value: float | None) -> float | None:
    return None if value is None else _rounded(value * 1000)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _csv(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_safe(cell) for cell in row] for row in rows)
    return out.getvalue()


def _safe(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
