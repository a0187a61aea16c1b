"""Two tables for spreadsheets: one row per step, and one row per stretch of time and step.

`--csv run.csv` writes the steps to `run.csv`, with a row for the steps of each tag and one for all of them together,
and the points to `run-points.csv`. Times are milliseconds, as the names of the columns say; what was not measured is
empty.
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
#: what a spreadsheet would take for a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: stands for a row over all steps
ALL = "(all)"
#: stands for a row over the steps that have a tag
TAG = "(tag)"

Cell = str | float | int | None


def steps_csv(summary: Summary) -> str:
    """One row per step, then one per tag; the last is of all steps together."""
    rows: list[list[Cell]] = [
        [
            *(one.workflow, one.step, one.requests, one.failed, one.raised, one.skipped, _rounded(one.rate)),
            *_times(one.service),
            *_times(one.response),
            *(_ms(one.phases[name].mean) if name in one.phases else None for name in PHASES),
            *(one.sent, one.received),
            *_ok_times(one),
        ]
        for one in summary.steps
    ]
    rows += [
        [
            *(TAG, tags_text([(one.tag, one.value)]), one.requests, one.failed, one.raised, None, _rounded(one.rate)),
            *_times(one.service),
            *_times(one.response),
            *(None for _ in PHASES),
            *(one.sent, one.received),
            *_ok_times(one),
        ]
        for one in summary.by_tag
    ]
    skipped = sum(one.skipped for one in summary.steps)
    rows.append(
        [
            *(ALL, ALL, summary.requests, summary.failed, summary.raised, skipped, _rounded(summary.rate)),
            *_times(summary.service),
            *_times(summary.response),
            *(None for _ in PHASES),
            *(summary.sent, summary.received),
            *_ok_times(summary),
        ]
    )
    return _csv(_STEP_HEADS, rows)


def points_csv(summary: Summary) -> str:
    """One row per stretch of time over all steps, and after it one for each step."""
    heads = (
        *_POINT_HEADS,
        *(f"{name}_ms" for name in _POINT_TIMES),
        *(f"response_{name}_ms" for name in _POINT_TIMES),
    )
    return _csv(heads, (row for one in summary.points for row in _point_rows(one)))


def points_path(path: Path) -> Path:
    """Where the points go, beside the steps.

    >>> str(points_path(Path("out/run.csv")))
    'out/run-points.csv'
    """
    return path.with_name(f"{path.stem}-points{path.suffix}")


def _point_rows(one: Point) -> Iterable[list[Cell]]:
    when: list[Cell] = [_rounded(one.at_s), _rounded(one.width_s)]
    rates = [_rounded(value) for value in (one.rate, one.failed, one.dropped)]
    times = [_ms(getattr(of, name, None)) for of in (one, one.response) for name in _POINT_TIMES]
    yield [*when, ALL, ALL, one.users, *rates, *times]
    for name, (rate, *found) in one.by_step.items():
        workflow, _, step = name.partition(".")
        yield [*when, workflow, step, None, _rounded(rate), None, None, *_of_step(found[:3]), *_of_step(found[3:])]


def _of_step(found: Sequence[float | None]) -> list[Cell]:
    """Its p50, p95 and p99, where a point has them, in the columns of `_POINT_TIMES`."""
    p50, p95, p99 = found or (None, None, None)
    return [_ms(p50), None, _ms(p95), _ms(p99), None]


def _times(found: Latency | None) -> list[Cell]:
    return [_ms(getattr(found, name)) if found is not None and found.count else None for name in _TIMES]


def _ok_times(one: Summary | StepSummary | TagSummary) -> list[Cell]:
    """Where nothing failed, all are."""
    return _times(one.ok if one.failed else one.service)


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
