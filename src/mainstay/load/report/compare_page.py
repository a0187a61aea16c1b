"""A comparison of two runs as one HTML page, with the curves of both in one chart each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape

from ..stats.model import Point, Summary
from . import charts
from .axes import Axis, axis_over
from .changes import value_text
from .compare import Comparison, Run, as_run
from .compare_text import conclusion, judgement_text, rule, run_name
from .parts import figure, load_document, section, table, text
from .svg import Chart, Line, Value
from .words import change_text

_LOOKS = (("A", "before"), ("B", "after"))


def comparison_html(found: Comparison, a: Summary | Run, b: Summary | Run) -> str:
    """The page. `a` and `b` are what was compared: their curves are drawn."""
    parts = comparison_parts(found, a, b)
    title = f"{found.a.name} and {found.b.name}: {conclusion(found)}"
    return load_document(title, parts, footer=f"Mainstay {found.b.version}")


def comparison_parts(found: Comparison, a: Summary | Run, b: Summary | Run) -> list[str]:
    """What the page is made of, for a page around it."""
    runs = as_run(a), as_run(b)
    told = f'<p class="soft">{escape(rule(found))}</p>'
    return [_head(found), _charts(runs), _numbers(found), _only(found), told]


def _head(found: Comparison) -> str:
    kind, mark = ("busy", "!") if found.undecided else ("bad", "✗") if found.worse else ("good", "✓")
    pills = f'<span class="pill {kind}">{mark} {escape(conclusion(found))}</span>'
    reasons = "".join(f"<li>{text(one)}</li>" for one in (*found.reasons, *found.notes))
    return (
        f"<header>\n<h1>Two runs side by side</h1>\n<p>{pills}</p>\n"
        + (f'<ul class="why">{reasons}</ul>\n' if reasons else "")
        + f'<p class="soft">A: {escape(run_name(found.a))}<br>B: {escape(run_name(found.b))}</p>\n</header>'
    )


def _numbers(found: Comparison) -> str:
    rows = []
    for step in found.steps:
        for place, one in enumerate(step.changes):
            judged = f'<span class="{one.judgement}">{escape(judgement_text(one))}</span>'
            name = f"<b>{text(step.name)}</b>" if place == 0 else ""
            rows.append((name, one.metric, *value_text(one), change_text(one.change), judged))
    return section("Numbers", table(("step", "", "A", "B", "change", ""), rows, words=(0, 1, 5)))


def _only(found: Comparison) -> str:
    rows = [("only in A", text(one)) for one in found.only_a] + [("only in B", text(one)) for one in found.only_b]
    return section("Steps of one run only", table(("", ""), rows, words=(0, 1)))


# charts -------------------------------------------------------------------------------------------------


def _charts(runs: tuple[Run, Run]) -> str:
    which = _which(runs)
    p95 = partial(charts.time_of, which=which, name="p95")
    figures = [
        figure(_over_time(runs, f"p95 of the {which} time over time", p95, charts.axis_text, log=None), "p95"),
        figure(_over_time(runs, "Requests a second", lambda one: one.rate, charts.count_text, log=False), "rate"),
        figure(_spread(runs), "spread"),
        figure(_percentiles(runs), "percentiles"),
    ]
    inner = "\n".join(one for one in figures if one)
    return f'<section>\n<h2>Both runs</h2>\n<div class="charts">\n{inner}\n</div>\n</section>' if inner else ""


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
        Line(name=name, look=look, values=charts.over_time(run.summary.points, value))
        for run, (name, look) in zip(runs, _LOOKS, strict=True)
    ]
    y = axis_over(_seen(lines), log=log)
    if y is None:
        return None
    x = Axis(0.0, max(charts.time_axis(run.summary.points).high for run in runs if run.summary.points))
    return Chart(
        title=title,
        about=f"{title}, of both runs; the table below says how they differ.",
        x=x,
        y=y,
        x_text=charts.clock_text,
        y_text=y_text,
        x_ticks=x.times(),
        lines=lines,
    )


def _spread(runs: tuple[Run, Run]) -> Chart | None:
    """As parts of all, for runs have unlike numbers of requests."""
    which = _which(runs)
    found = [_buckets(run, which) for run in runs]
    x = charts.spread_axis([bucket for buckets in found for bucket in buckets])
    if x is None:
        return None
    lines = [
        Line(name=name, look=look, filled=True, values=_parts(buckets, x))
        for buckets, (name, look) in zip(found, _LOOKS, strict=True)
        if buckets
    ]
    y = axis_over(_seen(lines), log=False)
    assert y is not None
    return Chart(
        title=f"Distribution of the {which} time",
        about="What part of the requests of each run took how long.",
        x=x,
        y=y,
        x_text=charts.axis_text,
        y_text=lambda value: f"{value:g} %",
        x_ticks=x.ticks(6),
        lines=lines,
    )


def _parts(buckets: charts.Buckets, x: Axis) -> list[Value]:
    total = sum(n for _, _, n in buckets)
    values: list[Value] = []
    for bar in charts.bins_of(buckets, x, empty=True):
        part = bar.value / total * 100
        values += [(bar.low, part), (bar.high, part)]
    return values


def _percentiles(runs: tuple[Run, Run]) -> Chart | None:
    found = [_buckets(run, _which(runs)) for run in runs]
    lines = [
        charts.percentile_line(buckets, name=name, look=look)
        for buckets, (name, look) in zip(found, _LOOKS, strict=True)
        if buckets
    ]
    return charts.percentile_chart(lines)


def _seen(lines: Sequence[Line]) -> list[float]:
    return [y for line in lines for _, y in line.values if y is not None]
