"""A comparison of two runs as one HTML page. Each chart has the curves of both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import markupsafe

from ..stats.model import Point, Summary
from . import charts
from .axes import ChartAxis, axis_over
from .changes import value_text
from .compare import Comparison, Run, as_run
from .compare_text import conclusion, judgement_text, rule, run_name
from .html import html_fragment, html_page
from .svg import Chart, Curve, Figure, Value
from .words import change_text

_LOOKS = (("A", "before"), ("B", "after"))


def comparison_html(comparison: Comparison, a: Summary | Run, b: Summary | Run) -> str:
    """The page. `a` and `b` are the compared runs: their curves are drawn."""
    title = f"{comparison.a.name} and {comparison.b.name}: {conclusion(comparison)}"
    return html_page(
        "comparison.html", title=title, footer=f"Mainstay {comparison.b.version}", **_values(comparison, a, b)
    )


def comparison_fragment(comparison: Comparison, a: Summary | Run, b: Summary | Run) -> markupsafe.Markup:
    """The content of the page, for a page around it."""
    return html_fragment("comparison_body.html", **_values(comparison, a, b))


def _values(comparison: Comparison, a: Summary | Run, b: Summary | Run) -> dict[str, Any]:
    return {
        "comparison": comparison,
        "conclusion": conclusion(comparison),
        "names": (run_name(comparison.a), run_name(comparison.b)),
        "charts": _charts((as_run(a), as_run(b))),
        "changes": [
            ("" if place else step.name, one, *value_text(one), change_text(one.change), judgement_text(one))
            for step in comparison.steps
            for place, one in enumerate(step.changes)
        ],
        "rule": rule(comparison),
    }


# charts -------------------------------------------------------------------------------------------------


def _charts(runs: tuple[Run, Run]) -> list[Figure]:
    which = _which(runs)
    p95 = partial(charts.time_of, which=which, name="p95")
    drawn = {
        "p95": _over_time(runs, f"p95 of the {which} time over time", p95, charts.axis_text, log=None),
        "rate": _over_time(runs, "Requests a second", lambda one: one.rate, charts.count_text, log=False),
        "spread": _spread(runs),
        "percentiles": _percentiles(runs),
    }
    return [Figure(ident=ident, chart=chart) for ident, chart in drawn.items() if chart is not None]


def _which(runs: tuple[Run, Run]) -> charts.Which:
    """The response time, if both runs have it."""
    return "response" if all(run.summary.response_distribution for run in runs) else "service"


def _buckets(run: Run, which: charts.Which) -> charts.Buckets:
    return run.summary.response_distribution if which == "response" else run.summary.distribution


def _over_time(
    runs: tuple[Run, Run],
    title: str,
    value: Callable[[Point], float | None],
    y_text: Callable[[float], str],
    *,
    log: bool | None,
) -> Chart | None:
    lines = [
        Curve(name=name, look=look, values=charts.over_time(run.summary.points, value))
        for run, (name, look) in zip(runs, _LOOKS, strict=True)
    ]
    y = axis_over(charts.values_of(lines), log=log)
    if y is None:
        return None
    x = ChartAxis(0.0, max(charts.time_axis(run.summary.points).high for run in runs if run.summary.points))
    about = f"{title}, of both runs; the table below shows how they differ."
    return charts.time_chart(x, title=title, about=about, y=y, y_text=y_text, lines=lines)


def _spread(runs: tuple[Run, Run]) -> Chart | None:
    """As shares, because runs have different numbers of requests."""
    which = _which(runs)
    histograms = [_buckets(run, which) for run in runs]
    x = charts.spread_axis([bucket for buckets in histograms for bucket in buckets])
    if x is None:
        return None
    lines = [
        Curve(name=name, look=look, filled=True, values=_shares(buckets, x))
        for buckets, (name, look) in zip(histograms, _LOOKS, strict=True)
        if buckets
    ]
    y = axis_over(charts.values_of(lines), log=False)
    assert y is not None
    return Chart(
        title=f"Distribution of the {which} time",
        about="The share of the requests of each run by their time.",
        x=x,
        y=y,
        x_text=charts.axis_text,
        y_text=lambda value: f"{value:g} %",
        x_ticks=x.ticks(6),
        lines=lines,
    )


def _shares(buckets: charts.Buckets, x: ChartAxis) -> list[Value]:
    total = sum(n for _, _, n in buckets)
    values: list[Value] = []
    for bar in charts.bins_of(buckets, x, empty=True):
        part = bar.value / total * 100
        values += [(bar.low, part), (bar.high, part)]
    return values


def _percentiles(runs: tuple[Run, Run]) -> Chart | None:
    histograms = [_buckets(run, _which(runs)) for run in runs]
    lines = [
        charts.percentile_line(buckets, name=name, look=look)
        for buckets, (name, look) in zip(histograms, _LOOKS, strict=True)
        if buckets
    ]
    return charts.percentile_chart(lines)
