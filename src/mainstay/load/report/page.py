"""A load test as one HTML page: no network, nothing beside it, readable without its script and without colours.

This module prepares the values; the markup is in `templates/load.html`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import markupsafe

from ...lifecycle import time_text as instant_text
from ..stats.model import PHASES, Latency, Point, StepSummary, Summary, TagSummary
from . import charts
from .advice import advice_for, troubles_of, verdict_words
from .html import html_fragment, html_page
from .limits import Limit, Scale, limits_of, marks_for
from .slices import slice_losses, slice_rows, slices_title
from .svg import Chart, ChartMark, Curve, Figure
from .text import (
    OK_NOTE,
    RESPONSE_NOTE,
    aborted_line,
    arrivals_line,
    ends_line,
    iterations_text,
    latency_text,
    length_text,
    many_failed,
    metric_name,
    metric_text,
    raised_line,
    resent_line,
    several_workflows,
    step_name,
    tag_name,
    threshold_text,
    unexpected_line,
)
from .words import NONE, counted, digits, one_line, rate_text, share_text, size_text, time_text

_IDENTS: dict[charts.Which, str] = {"service": "latency", "response": "response"}
_EITHER = "Response time of the steps that run at a rate, service time of the others."
_MOST_ERRORS = 50
_COLUMNS = ("p50", "p90", "p95", "p99", "max")
_LATENCY_FIELDS = ("mean", "stdev", "min", "p50", "p75", "p90", "p95", "p99", "p999", "max")


def load_html(summary: Summary) -> str:
    """The page."""
    header, limits, verdict = summary.header, limits_of(summary), verdict_words(summary)
    several = several_workflows(summary)
    ended_ms = header.started_ms + round(summary.elapsed_s * 1000)
    return html_page(
        "load.html",
        title=f"{header.name}: {', '.join(verdict.words)}",
        footer=f"Mainstay {header.version}, {instant_text(ended_ms)}",
        summary=summary,
        verdict=verdict,
        models="; ".join(f"{one.get('name', '')}: {one.get('model', '')}" for one in header.workflows),
        facts=facts(summary),
        advice=[one for one in advice_for(summary) if "--html" not in one.command],
        thresholds=_thresholds(summary, limits),
        columns=_COLUMNS,
        steps=[(step_name(one, several=several), one, other_times(one)) for one in summary.steps],
        tags=[(tag_name(one), _steps_with(one, several), one, other_times(one)) for one in summary.by_tag],
        slices=slice_rows(summary),
        slices_title=slices_title(summary),
        slice_losses=slice_losses(summary),
        metrics=[(metric_name(one), one.type, metric_text(one)) for one in summary.metrics],
        troubles=troubles_of(summary),
        about=_about(summary),
        **_chart_values(summary, limits),
        **_step_charts(summary, limits),
        **_phases(summary, several=several),
        **_errors(summary),
    )


def charts_html(summary: Summary) -> markupsafe.Markup:
    """The charts of the run, for a page around them."""
    return html_fragment("run_charts.html", **_chart_values(summary, limits_of(summary)))


def facts(summary: Summary) -> list[tuple[str, str, str]]:
    """The most important numbers: name, value, and what belongs to it."""
    failed = share_text(summary.failed, summary.requests)
    numbers = [
        ("Requests", f"{summary.requests:,}", f"in {length_text(summary)}"),
        ("Rate", rate_text(summary.rate), "mean of the run"),
        ("Failed", failed, counted(summary.failed, "request")),
    ]
    if summary.raised:
        numbers.append(("Raised", f"{summary.raised:,}", raised_line(summary)))
    if summary.response is not None:
        numbers.append(_fact("Response time p95", summary.response))
    if summary.service is not None:
        numbers.append(_fact("Service time p95", summary.service))
    if many_failed(summary):
        numbers.append(_fact("Successful p95", summary.ok))
    numbers.append(("Users", f"{summary.users:,}", f"at most; {iterations_text(summary)}"))
    if ends := ends_line(summary):
        numbers.append(("Started", f"{summary.begun:,}", ends.partition(" ")[2]))
    if summary.arrivals:
        numbers.append(("Dropped", f"{summary.dropped:,}", f"of {summary.arrivals:,} arrivals"))
    return numbers


def _fact(name: str, latency: Latency | None) -> tuple[str, str, str]:
    if latency is None:
        return name, NONE, "no request succeeded"
    return name, time_text(latency.p95), f"p50 {time_text(latency.p50)}, p99 {time_text(latency.p99)}"


def _thresholds(summary: Summary, limits: Sequence[Limit | None]) -> list[Any]:
    """Each threshold with its text and its bar: the value and the limit as parts of the width."""
    rows = []
    for one, limit in zip(summary.thresholds, limits, strict=True):
        bar = None
        if limit is not None and one.value is not None and limit.value > 0:
            # the limit in the middle, unless the value lies far beyond it, or is a share, which ends at 100 %
            whole = max(2 * limit.value, one.value * 1.05)
            whole = whole if limit.most is None else min(whole, limit.most)
            bar = one.value / whole, limit.value / whole
        rows.append((one, threshold_text(one.shown, one.at_s, one.stopped), bar))
    return rows


# charts -------------------------------------------------------------------------------------------------


def _chart_values(summary: Summary, limits: Sequence[Limit | None]) -> dict[str, Any]:
    """What `run_charts.html` shows: the curves of the run with the limits of its thresholds, the distribution of its
    times, and the numbers of both."""
    points_heads, points = _points_table(summary.points)
    return {
        "over_time": _over_time(summary, limits) if summary.points else [],
        "points_heads": points_heads,
        "points": points,
        **_times(summary),
    }


def _over_time(summary: Summary, limits: Sequence[Limit | None]) -> list[Figure]:
    points = summary.points
    # a single step has no chart of its own
    only = [name for one in summary.steps for name in (one.step, f"{one.workflow}.{one.step}")]
    steps = ("", *(only if len(summary.steps) == 1 else ()))
    return _present(
        # only the response time includes the wait before a request could start, so it comes first
        _latency(points, marks_for(limits, "response", *steps), "response"),
        _latency(points, marks_for(limits, "latency", *steps), "service"),
        _figure("rate", charts.rate_chart(points, marks_for(limits, "rate"))),
        _figure("users", charts.users_chart(points)),
        _figure("failed", charts.failed_chart(points)),
    )


def _latency(points: Sequence[Point], limits: Sequence[ChartMark], which: charts.Which) -> Figure | None:
    even, tall = (charts.latency_chart(points, log=log, limits=limits, which=which) for log in (False, True))
    return _figure(_IDENTS[which], even, tall, log=charts.is_spread(points, which))


def _figure(ident: str, chart: Chart | None, tall: Chart | None = None, *, log: bool = False) -> Figure | None:
    return None if chart is None else Figure(ident=ident, chart=chart, tall=tall, log=log)


def _present(*figures: Figure | None) -> list[Figure]:
    return [one for one in figures if one is not None]


def _points_table(points: Sequence[Point]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    waited = any(one.response is not None for one in points)
    kinds: tuple[charts.Which, ...] = ("response", "service") if waited else ("service",)
    times = (f"{which} {name}" if waited else name for which in kinds for name in _COLUMNS)
    heads = ("from", "users", "requests/s", "failed/s", "dropped/s", *times)
    rows = [
        (
            charts.clock_text(one.at_s),
            f"{one.users:,}",
            *(digits(value) for value in (one.rate, one.failed, one.dropped)),
            *(time_text(charts.time_of(one, which=which, name=name)) for which in kinds for name in _COLUMNS),
        )
        for one in points
    ]
    return heads, rows


def _times(summary: Summary) -> dict[str, Any]:
    """How long requests took: charts and a table."""
    service, response = summary.service, summary.response
    if not summary.distribution or service is None:
        return {"distribution": [], "times_heads": (), "times": [], "notes": []}
    rows = [_latency_row("service time", service)]
    notes = []
    if many_failed(summary):
        rows.append(_latency_row("ok", summary.ok))
        notes.append(OK_NOTE)
    if response is not None:
        rows.append(_latency_row("response time", response))
        notes.append(RESPONSE_NOTE)
    return {
        "distribution": _present(
            _spread(summary.response_distribution, response, "response"),
            _spread(summary.distribution, service, "service"),
            _figure("percentiles", charts.percentile_chart(_percentile_lines(summary))),
        ),
        "times_heads": ("", "requests", *(name.replace("p999", "p99.9") for name in _LATENCY_FIELDS)),
        "times": rows,
        "notes": notes,
    }


def _spread(buckets: charts.Buckets, times: Latency | None, which: charts.Which) -> Figure | None:
    even, tall = (charts.distribution_chart(buckets, times, log=log, which=which) for log in (False, True))
    return _figure(f"spread-{which}", even, tall)


def _percentile_lines(summary: Summary) -> list[Curve]:
    lines = [charts.percentile_line(summary.distribution, name="service time", look="c1")]
    if summary.response_distribution:
        lines.insert(0, charts.percentile_line(summary.response_distribution, name="response time", look="c4"))
    elif summary.response is not None:  # a summary of an earlier version
        lines.append(charts.named_line(summary.response, name="response time", look="c4"))
    return lines


def _latency_row(name: str, latency: Latency | None) -> list[str]:
    count = latency.count if latency else 0
    return [name, f"{count:,}", *(latency_text(latency, field) for field in _LATENCY_FIELDS)]


# steps --------------------------------------------------------------------------------------------------


def _step_charts(summary: Summary, limits: Sequence[Limit | None]) -> dict[str, Any]:
    """A small chart for each of several steps."""
    limited = {}
    for one in summary.steps:
        name = f"{one.workflow}.{one.step}"
        scale: Scale = "response" if charts.has_response(summary.points, name) else "latency"
        limited[name] = marks_for(limits, scale, one.step, name)
    small = charts.step_charts(summary.points, limited) if len(limited) > 1 else {}
    waited = {charts.has_response(summary.points, name) for name in small}
    which = "Service" if waited == {False} else "Response" if waited == {True} else "Response or service"
    return {
        "step_charts": [Figure(ident=f"step{place}", chart=chart) for place, chart in enumerate(small.values())],
        "step_charts_title": f"{which} time over time",
        "step_charts_note": _EITHER if len(waited) > 1 else "",
    }


def other_times(one: StepSummary | TagSummary) -> list[tuple[str, Latency | None]]:
    """Times beside those of all requests: of the successful ones, and since a request was due."""
    times = [("ok", one.ok)] if many_failed(one) else []
    return times + ([("response time", one.response)] if one.response is not None else [])


def _steps_with(one: TagSummary, several: bool) -> str:
    return ", ".join(name if several else name.partition(".")[2] for name in one.steps)


def _phases(summary: Summary, *, several: bool) -> dict[str, Any]:
    """Means add up, so a bar is the mean request: a phase that few calls had is as short as it weighs."""
    rows = []
    for one in summary.steps:
        if one.phases and one.requests:
            weights = {name: phase.mean * phase.count / one.requests for name, phase in one.phases.items()}
            rows.append((step_name(one, several=several), weights))
    return {
        "phase_names": tuple(name for name in PHASES if any(name in weights for _, weights in rows)),
        "phases": rows,
        "longest_s": max((sum(weights.values()) for _, weights in rows), default=0.0) or 1.0,
    }


# lists --------------------------------------------------------------------------------------------------


def _errors(summary: Summary) -> dict[str, Any]:
    names = [(f"{one_line(one.workflow)}.{one_line(one.step)}", one) for one in summary.steps]
    return {
        "errors": sorted(summary.errors.items(), key=lambda one: -one[1]),
        "error_count": sum(summary.errors.values()) or 1,
        "most_errors": _MOST_ERRORS,
        "step_errors": [
            (name, one_line(kind), f"{count:,}", one_line(one.examples.get(kind, "")))
            for name, one in names
            for kind, count in sorted(one.errors.items(), key=lambda each: -each[1])
        ],
        "statuses": [
            (name, one_line(status), f"{count:,}")
            for name, one in names
            for status, count in sorted(one.statuses.items())
        ],
    }


def _about(summary: Summary) -> list[tuple[str, str]]:
    header = summary.header
    return [
        ("run", header.run),
        ("started", instant_text(header.started_ms)),
        ("ended", one_line(summary.ended)),
        ("generator", counted(header.processes, "process", "processes")),
        ("arrivals", arrivals_line(summary)),
        ("aborted", aborted_line(summary)),
        ("calls", f"{summary.sent_calls:,} sent, {summary.answered_calls:,} answered, measured or not"),
        ("sent again", resent_line(summary)),
        ("unexpected", unexpected_line(summary)),
        ("bytes", f"{size_text(summary.sent)} sent, {size_text(summary.received)} received"),
        ("tags", one_line(", ".join(f"{key}={value}" for key, value in sorted(header.tags.items())))),
        ("recorded in", summary.stream),
        *((f"output {one_line(one.name)}", one_line(one.error)) for one in summary.outputs if one.error),
    ]
