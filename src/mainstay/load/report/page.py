"""A load test as one HTML page: no network, nothing beside it, readable without its script and without colours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ...lifecycle import time_text as instant_text
from ..stats.model import PHASES, Latency, Point, StepSummary, Summary, TagSummary
from . import charts
from .advice import Word, advice_for, troubles_of, verdict_words
from .limits import Limit, limits_of, marks_for
from .parts import code, figure, folded, gauge, load_document, section, share_bar, table, text, two_scales
from .svg import Line, Mark, legend
from .text import (
    OK_NOTE,
    RESPONSE_NOTE,
    arrivals_line,
    ends_line,
    iterations_text,
    many_failed,
    metric_name,
    metric_text,
    of_latency,
    raised_text,
    resent_line,
    step_name,
    tag_name,
    threshold_text,
    took,
    unexpected_line,
)
from .words import NONE, counted, digits, rate_text, share_text, size_text, time_text

_PILLS: dict[Word, tuple[str, str]] = {
    "passed": ("good", "✓"),
    "failed": ("bad", "✗"),
    "interrupted": ("busy", "!"),
    "running": ("busy", "…"),
    "lost": ("bad", "✗"),
    "NOT TRUSTWORTHY": ("busy", "!"),
}
_IDENTS: dict[charts.Which, str] = {"service": "latency", "response": "response"}
_EITHER = "response time of the steps that come at a rate, service time of the others"
_KINDS = 50
_COLUMNS = ("p50", "p90", "p95", "p99", "max")


def load_html(summary: Summary) -> str:
    """The page."""
    limits = limits_of(summary)
    parts = [
        _head(summary),
        _advice(summary),
        _thresholds(summary, limits),
        over_time(summary, limits),
        distribution(summary),
        _steps(summary, limits),
        _tags(summary),
        _errors(summary),
        _checks(summary),
        _metrics(summary),
        _troubles(summary),
        _about(summary),
    ]
    title = f"{summary.header.name}: {', '.join(verdict_words(summary).words)}"
    ended_ms = summary.header.started_ms + round(summary.elapsed_s * 1000)
    footer = f"Mainstay {summary.header.version}, {instant_text(ended_ms)}"
    return load_document(title, parts, footer=footer)


def _head(summary: Summary) -> str:
    verdict = verdict_words(summary)
    pills = "".join(f' <span class="pill {_PILLS[one][0]}">{_PILLS[one][1]} {one}</span>' for one in verdict.words)
    reasons = "".join(f"<li>{text(one)}</li>" for one in verdict.reasons)
    models = "; ".join(f"{one.get('name', '')}: {one.get('model', '')}" for one in summary.header.workflows)
    return (
        f"<header>\n<h1>{text(summary.header.name)}{pills}</h1>\n"
        + (f'<ul class="why">{reasons}</ul>\n' if reasons else "")
        + (f'<p class="soft">{text(models)}</p>\n' if models else "")
        + '<dl class="facts">\n'
        + "\n".join(
            f"<div><dt>{a}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in facts(summary)
        )
        + "\n</dl>\n</header>"
    )


def facts(summary: Summary) -> list[tuple[str, str, str]]:
    """The numbers that are asked for first: what, how much, and what goes with it."""
    failed = share_text(summary.failed, summary.requests)
    found = [
        ("Requests", f"{summary.requests:,}", f"in {took(summary)}"),
        ("Rate", rate_text(summary.rate), "mean of the run"),
        ("Failed", failed, counted(summary.failed, "request")),
    ]
    if summary.raised:
        found.append(
            ("Raised", f"{summary.raised:,}", f"{raised_text(summary)}; error rate {share_text(summary.error_rate, 1)}")
        )
    if summary.response is not None:
        found.append(_fact("Response time p95", summary.response))
    if summary.service is not None:
        found.append(_fact("Service time p95", summary.service))
    if many_failed(summary):
        found.append(_fact("Successful p95", summary.ok))
    found.append(("Users", f"{summary.users:,}", f"at most; {iterations_text(summary)}"))
    if ends := ends_line(summary):
        found.append(("Started", f"{summary.begun:,}", ends.partition(" ")[2]))
    if summary.arrivals:
        found.append(("Dropped", f"{summary.dropped:,}", f"of {summary.arrivals:,} arrivals"))
    return found


def _fact(name: str, found: Latency | None) -> tuple[str, str, str]:
    if found is None:
        return name, NONE, "there is none"
    return name, time_text(found.p95), f"p50 {time_text(found.p50)}, p99 {time_text(found.p99)}"


def _advice(summary: Summary) -> str:
    told = [one for one in advice_for(summary) if "--html" not in one.command]
    if not told:
        return ""
    lines = (f"{escape(one.why)}:<br>{code(one.command)}" if one.command else f"{escape(one.why)}." for one in told)
    return f'<section class="do">{"".join(f"<p>{line}</p>" for line in lines)}</section>'


def _thresholds(summary: Summary, limits: Sequence[Limit | None]) -> str:
    rows = []
    for one, limit in zip(summary.thresholds, limits, strict=True):
        bar = ""
        if limit is not None and one.value is not None and limit.value > 0:
            # the limit in the middle, unless the value lies far beyond it, or there is no more than all
            whole = max(2 * limit.value, one.value * 1.05)
            whole = whole if limit.most is None else min(whole, limit.most)
            bar = gauge(one.value / whole, limit.value / whole, over=not one.passed)
        state = '<span class="good">✓ holds</span>' if one.passed else '<span class="bad">✗ broken</span>'
        rows.append((state, code(one.text), text(threshold_text(one.shown, one.at_s, one.stopped)), bar))
    return section("Thresholds", table(("", "threshold", "value", ""), rows, words=(0, 1, 2), grow=3))


# charts -------------------------------------------------------------------------------------------------


def over_time(summary: Summary, limits: Sequence[Limit | None]) -> str:
    """The curves of the run, with the limits that thresholds set, and the numbers below them."""
    points = summary.points
    if not points:
        return ""
    # the one step that there is has no chart of its own
    only = [name for one in summary.steps for name in (one.step, f"{one.workflow}.{one.step}")]
    steps = ("", *(only if len(summary.steps) == 1 else ()))
    figures = [
        # what waited before it could begin is in the response time only, so that is the one to look at first
        _latency(points, marks_for(limits, "response", *steps), "response"),
        _latency(points, marks_for(limits, "latency", *steps), "service"),
        figure(charts.rate_chart(points, marks_for(limits, "rate")), "rate"),
        figure(charts.users_chart(points), "users"),
        figure(charts.failed_chart(points), "failed"),
    ]
    return section("Over time", _grid(figures), folded("The numbers of these charts", _points_table(points)))


def _latency(points: Sequence[Point], limits: Sequence[Mark], which: charts.Which) -> str:
    even, tall = (charts.latency_chart(points, log=log, limits=limits, which=which) for log in (False, True))
    return two_scales(even, tall, _IDENTS[which], log=charts.is_spread(points, which))


def _grid(figures: Sequence[str]) -> str:
    inner = "\n".join(one for one in figures if one)
    return f'<div class="charts">\n{inner}\n</div>' if inner else ""


def _points_table(points: Sequence[Point]) -> str:
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
    return table(heads, rows)


def distribution(summary: Summary) -> str:
    """How long requests took: how often, and by percentile."""
    buckets, service = summary.distribution, summary.service
    if not buckets or service is None:
        return ""
    figures = [
        _spread(summary.response_distribution, summary.response, "response"),
        _spread(buckets, service, "service"),
        figure(charts.percentile_chart(_percentile_lines(summary)), "percentiles"),
    ]
    heads = ("", "requests", "mean", "stdev", "min", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")
    rows = [_latency_row("service time", service)]
    notes = []
    if many_failed(summary):
        rows.append(_latency_row("ok", summary.ok))
        notes.append(OK_NOTE)
    if summary.response is not None:
        rows.append(_latency_row("response time", summary.response))
        notes.append(RESPONSE_NOTE)
    return section("How long requests took", _grid(figures), table(heads, rows), *map(_note, notes))


def _spread(buckets: charts.Buckets, times: Latency | None, which: charts.Which) -> str:
    even, tall = (charts.distribution_chart(buckets, times, log=log, which=which) for log in (False, True))
    return two_scales(even, tall, f"spread-{which}", log=False)


def _percentile_lines(summary: Summary) -> list[Line]:
    lines = [charts.percentile_line(summary.distribution, name="service time", look="c1")]
    if summary.response_distribution:
        lines.insert(0, charts.percentile_line(summary.response_distribution, name="response time", look="c4"))
    elif summary.response is not None:  # of a summary of an earlier version
        lines.append(charts.named_line(summary.response, name="response time", look="c4"))
    return lines


def _note(said: str) -> str:
    return f'<p class="soft">{escape(said[0].upper() + said[1:])}.</p>'


def _latency_row(name: str, found: Latency | None) -> list[str]:
    fields = ("mean", "stdev", "min", "p50", "p75", "p90", "p95", "p99", "p999", "max")
    return [name, f"{found.count if found else 0:,}", *(of_latency(found, field) for field in fields)]


# steps --------------------------------------------------------------------------------------------------


def _steps(summary: Summary, limits: Sequence[Limit | None]) -> str:
    several = len({one.workflow for one in summary.steps}) > 1
    heads = ("step", "requests", "failed", "", "rate", *_COLUMNS, "received")
    rows = []
    for one in summary.steps:
        rows.append(
            (
                escape(step_name(one, several=several))
                + (f"<br>raised {one.raised:,}×" if one.raised else "")
                + (f"<br>skipped {one.skipped:,}×" if one.skipped else ""),
                f"{one.requests:,}",
                f"{one.failed:,}",
                share_text(one.failed, one.requests),
                rate_text(one.rate),
                *_columns(one.service),
                size_text(one.received),
            )
        )
        rows += [(_beside(name), "", "", "", "", *_columns(found), "") for name, found in other_times(one)]
    limited = {
        f"{one.workflow}.{one.step}": marks_for(
            limits,
            "response" if charts.has_response(summary.points, f"{one.workflow}.{one.step}") else "latency",
            *(one.step, f"{one.workflow}.{one.step}"),
        )
        for one in summary.steps
    }
    small = charts.step_charts(summary.points, limited) if len(limited) > 1 else {}
    grid = ""
    if small:
        figures = "\n".join(figure(chart, f"step{place}", key=False) for place, chart in enumerate(small.values()))
        key = legend([line for chart in small.values() for line in chart.lines])
        waited = {charts.has_response(summary.points, name) for name in small}
        which = "Service" if waited == {False} else "Response" if waited == {True} else "Response or service"
        about = _note(_EITHER) if len(waited) > 1 else ""
        grid = (
            f'<h3>{which} time over time, all to one scale</h3>\n{about}{key}\n<div class="steps">\n{figures}\n</div>'
        )
    return section("Steps", table(heads, rows), grid, _phases(summary, several=several))


def other_times(one: StepSummary | TagSummary) -> list[tuple[str, Latency | None]]:
    """Beside the percentiles of all requests: those of the successful ones, those since a request was due."""
    found = [("ok", one.ok)] if many_failed(one) else []
    return found + ([("response time", one.response)] if one.response is not None else [])


def _columns(found: Latency | None) -> list[str]:
    return [of_latency(found, name) for name in _COLUMNS]


def _beside(name: str) -> str:
    return f'<span class="soft">&nbsp;&nbsp;{name}</span>'


def _tags(summary: Summary) -> str:
    several = len({one.workflow for one in summary.steps}) > 1
    rows = []
    for one in summary.by_tag:
        rows.append(
            (
                code(tag_name(one)) + (f"<br>raised {one.raised:,}×" if one.raised else ""),
                text(", ".join(name if several else name.partition(".")[2] for name in one.steps)),
                f"{one.requests:,}",
                f"{one.failed:,}",
                share_text(one.failed, one.requests),
                rate_text(one.rate),
                *_columns(one.service),
                size_text(one.received),
            )
        )
        rows += [(_beside(name), "", "", "", "", "", *_columns(found), "") for name, found in other_times(one)]
    heads = ("tag", "steps", "requests", "failed", "", "rate", *_COLUMNS, "received")
    return section("Tags", table(heads, rows, words=(0, 1)))


def _phases(summary: Summary, *, several: bool) -> str:
    """Means add up, so a bar is the mean request: a phase that few calls had is as short as it weighs."""
    steps = [one for one in summary.steps if one.phases and one.requests]
    used = [name for name in PHASES if any(name in one.phases for one in steps)]
    if not used:
        return ""
    longest = max(sum(_weights(one).values()) for one in steps) or 1.0
    key = "".join(f'<span><i class="ph-{name}"></i>{name}</span> ' for name in used)
    rows = []
    for one in steps:
        weights = _weights(one)
        bar = "".join(
            f'<b class="ph-{name}" style="width:{weights[name] / longest * 100:.2f}%"></b>'
            for name in used
            if weights.get(name)
        )
        shown = (time_text(weights[name]) if name in weights else NONE for name in used)
        name = escape(step_name(one, several=several))
        rows.append((name, f'<span class="stack" aria-hidden="true">{bar}</span>', *shown))
    about = '<p class="soft">Mean of all requests; a connection is opened by few of them.</p>'
    return (
        f'<h3>Where the time went</h3>\n{about}\n<p class="legend">{key.strip()}</p>\n'
        f"{table(('step', '', *used), rows, grow=1)}"
    )


def _weights(one: StepSummary) -> dict[str, float]:
    return {name: found.mean * found.count / one.requests for name, found in one.phases.items()}


# lists --------------------------------------------------------------------------------------------------


def _errors(summary: Summary) -> str:
    kinds = sorted(summary.errors.items(), key=lambda one: -one[1])
    total = sum(summary.errors.values()) or 1
    rows = [
        (text(kind), f"{count:,}", share_bar(count / total), text(summary.examples.get(kind, "")))
        for kind, count in kinds[:_KINDS]
    ]
    more = f'<p class="soft">{len(kinds) - _KINDS:,} more kinds.</p>' if len(kinds) > _KINDS else ""
    by_step = [
        (f"{text(one.workflow)}.{text(one.step)}", text(kind), f"{count:,}", text(one.examples.get(kind, "")))
        for one in summary.steps
        for kind, count in sorted(one.errors.items(), key=lambda found: -found[1])
    ]
    statuses = [
        (f"{text(one.workflow)}.{text(one.step)}", text(status), f"{count:,}")
        for one in summary.steps
        for status, count in sorted(one.statuses.items())
    ]
    by_status = table(("step", "status", "requests"), statuses, words=(0, 1))
    if not kinds:
        return section("Statuses", by_status)
    return section(
        "Errors",
        table(("kind", "times", "", "for instance" if summary.examples else ""), rows, words=(0, 3), grow=2),
        more,
        folded("By step", table(("step", "kind", "times", "for instance"), by_step, words=(0, 1, 3)))
        if len(by_step) > 1
        else "",
        folded("Statuses", by_status),
    )


def _checks(summary: Summary) -> str:
    rows = [
        (
            f"{text(one.workflow)}.{text(one.step)}",
            f"{one.passed:,}",
            f"{one.failed:,}",
            f"{one.skipped:,}",
            "<br>".join(f"{count:,} × {text(reason)}" for reason, count in one.reasons.items()),
        )
        for one in summary.checks
    ]
    return section("Checks", table(("check", "passed", "failed", "skipped", "what failed said"), rows, words=(0, 4)))


def _metrics(summary: Summary) -> str:
    rows = [
        (escape(metric_name(one)), f'<span class="whole">{one.type}</span>', escape(metric_text(one)))
        for one in summary.metrics
    ]
    return section("Metrics of the test's own", table(("metric", "type", "value"), rows, words=(0, 1, 2)))


def _troubles(summary: Summary) -> str:
    rows = [(text(name), "" if ran else "not run", text(why)) for name, why, ran in troubles_of(summary)]
    return section("Workflows that went wrong", table(("workflow", "", "why"), rows, words=(0, 1, 2)))


def _about(summary: Summary) -> str:
    header = summary.header
    facts = [
        ("run", code(header.run)),
        ("started", instant_text(header.started_ms)),
        ("ended", text(summary.ended)),
        ("generator", counted(header.processes, "process", "processes")),
        ("arrivals", escape(arrivals_line(summary))),
        ("aborted", f"{summary.aborted:,} calls under way at the end" if summary.aborted else ""),
        ("calls", f"{summary.sent_calls:,} sent, {summary.answered_calls:,} answered, measured or not"),
        ("sent again", escape(resent_line(summary))),
        ("unexpected", escape(unexpected_line(summary))),
        ("bytes", f"{size_text(summary.sent)} sent, {size_text(summary.received)} received"),
        ("tags", text(", ".join(f"{key}={value}" for key, value in sorted(header.tags.items())))),
        ("recorded in", code(summary.stream) if summary.stream else ""),
        *((f"output {text(one.name)}", text(one.error)) for one in summary.outputs if one.error),
    ]
    return section("About this run", table(("", ""), [one for one in facts if one[1]], words=(0, 1)))
