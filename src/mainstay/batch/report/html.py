"""The report of a batch as one HTML page, without scripts and network access: for screens, phones and paper."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from ...clock import duration_text
from ...lifecycle import table_of, time_text
from ...report import asset, render_page, template_environment
from ..advice import batch_advice
from .heat_map import HeatMap, heat_map, params_text
from .model import BatchReport, Level

#: limits of a map, and of all maps together: they keep the page small
_COLUMNS, _ROWS, _FACETS, _CELLS = 40, 40, 12, 1600
_SETS = 50
SYMBOLS: dict[Level, str] = {"all": "●", "most": "◕", "half": "◑", "few": "◔", "none": "○"}
MEANINGS: dict[Level, str] = {
    "all": "all units intact",
    "most": "two thirds or more",
    "half": "a third or more",
    "few": "fewer",
    "none": "none",
}
_PILL_SYMBOLS = {"good": "✓", "bad": "✗", "busy": "…", "off": "–"}


@cache
def _templates() -> jinja2.Environment:
    environment = template_environment(__package__)
    environment.filters.update(n=lambda value: f"{value:,}", time=time_text, params=params_text)
    environment.globals.update(symbols=SYMBOLS, meanings=MEANINGS)
    return environment


def batch_html(report: BatchReport) -> str:
    """The page."""
    pill = _pill(report)
    return render_page(
        _templates(),
        "batch.html",
        title=f"{report.study}: {report.status}",
        footer=f"Mainstay, {time_text(report.at_ms)}",
        styles=[asset(__package__, "batch.css")],
        report=report,
        pill=pill,
        symbol=_PILL_SYMBOLS[pill],
        facts=_facts(report),
        advice=batch_advice(report.id, report.status, lacking=report.outputs.lacking),
        map=map_html(report),
        broken=report.broken_sets[:_SETS],
    )


def map_html(report: BatchReport) -> Markup:
    """The parameter sets by outcome, as a part of a page."""
    parameter_map = _fitting(report) if report.outcomes else None
    part: Any = _templates().get_template("map.html").module
    markup: Markup = part.parameter_map(parameter_map, report.outputs.why)
    return markup


def _pill(report: BatchReport) -> str:
    if not report.settled and table_of(None).get(report.status) is not None:
        return "busy"
    return {"succeeded": "good", "cancelled": "off", "skipped": "off"}.get(report.status, "bad")


def _facts(report: BatchReport) -> list[tuple[str, str, str]]:
    """Name, value and detail of each fact at the head of the page."""
    units, outputs = report.units, report.outputs
    whole = sum(one.intact == one.units for one in report.outcomes)
    took = duration_text(max(0.001, round(report.took_s, 1))) if report.rounds else "–"
    rounds = {0: "not begun", 1: "in one go"}.get(report.rounds, f"started {report.rounds} times")
    gaps = "could not be checked" if outputs.source == "unknown" else ", ".join(outputs.gaps) or "all intact"
    return [
        ("Parameter sets", f"{report.sets:,}", f"{whole:,} whole" if report.outcomes else ""),
        ("Units", f"{report.total:,}", f"{units.succeeded:,} run, {units.there + units.skipped:,} already present"),
        ("Failed", f"{units.failed:,}", "units, since it was last started" if report.rounds > 1 else "units"),
        ("Outputs", f"{outputs.present:,} of {outputs.expected:,}", gaps),
        ("Time", took, rounds),
    ]


def _fitting(report: BatchReport) -> HeatMap:
    """The finest map that has room."""
    columns, rows = _COLUMNS, _ROWS
    while True:
        parameter_map = heat_map(report.outcomes, columns=columns, rows=rows, facets=_FACETS)
        if len(parameter_map.x.labels) * len(parameter_map.y.labels) * len(parameter_map.facets) <= _CELLS:
            return parameter_map
        columns, rows = columns * 3 // 4, rows * 3 // 4
