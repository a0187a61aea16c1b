"""The summary of a load test in a terminal. In narrow terminals its tables have fewer columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...clock import duration_text
from ..stats.model import PHASES, Latency, MetricSummary, OutputOutcome, StepSummary, Summary, TagSummary
from ..stats.tags import tags_text
from .advice import Word, advice_for, troubles_of, verdict_words
from .slices import slice_losses, slice_rows, slices_title
from .words import NONE, counted, digits, one_line, rate_text, share_text, size_text, time_text

#: lines of a list, at most
_LINES = 12
#: rows of nodes, at most
_SLICES = 40
#: steps of which an example is shown, for each kind of error
_STEPS_OF_A_KIND = 3
#: least width of a name in a table; longer names are folded
_NAME_LEAST = 8
#: the columns of all tables, the most important first
_IMPORTANCE = (
    *(
        "requests",
        "passed",
        "failed",
        "missing",
        "cores",
        "clock",
        "late",
        "late windows",
        "p99",
        "p50",
        "p95",
        "rate",
        "p90",
        "max",
        "skipped",
    ),
    *("wait", "connect", "receive", "tls", "send", "blocked"),
)
#: a name, and its cells by column
_Row = tuple[Text, dict[str, Text]]
#: explains the rows of response times
RESPONSE_NOTE = "response: from the moment a request was due, with the wait before it could be sent"
#: explains the rows of successful requests
OK_NOTE = "ok: successful requests only; the other rows include failed ones, which may be much faster or slower"
#: beyond this share of failed requests, percentiles of the successful ones are shown as well
_MANY_FAILED = 0.01
_STYLES: dict[Word, str] = {
    "passed": "bold green",
    "failed": "bold red",
    "interrupted": "bold yellow",
    "running": "bold cyan",
    "lost": "bold red",
    "NOT TRUSTWORTHY": "bold yellow",
}


def show_summary(summary: Summary, console: Console) -> None:
    """Print the whole summary: the verdict first, advice last."""
    _show_verdict(summary, console)
    _show_totals(summary, console)
    _show_steps(summary, console)
    _show_tags(summary, console)
    _show_slices(summary, console)
    _show_phases(summary, console)
    _show_errors(summary, console)
    _show_checks(summary, console)
    _show_metrics(summary, console)
    _show_thresholds(summary, console)
    _show_files(summary, console)
    _show_advice(summary, console)


def _show_verdict(summary: Summary, console: Console) -> None:
    verdict = verdict_words(summary)
    line = Text(one_line(summary.header.name), style="bold").append(" ")
    for place, word in enumerate(verdict.words):
        line.append("" if place == 0 else ", ", style="not bold").append(word, style=_STYLES[word])
    console.print(line)
    for reason in verdict.reasons:
        console.print(Padding(Text(one_line(reason)), (0, 0, 0, 2)))


def _show_totals(summary: Summary, console: Console) -> None:
    facts = [
        ("requests", f"{summary.requests:,} in {length_text(summary)}, {rate_text(summary.rate)}"),
        ("failed", f"{summary.failed:,} ({share_text(summary.failed, summary.requests)})" if summary.requests else ""),
        ("raised", raised_line(summary)),
        ("time", latency_line(summary.service)),
        ("ok time", (latency_line(summary.ok) or NONE) if many_failed(summary) else ""),
        ("response", latency_line(summary.response)),
        ("users", f"{summary.users:,} at most, {iterations_text(summary)}"),
        ("started", ends_line(summary)),
        ("arrivals", arrivals_line(summary)),
        ("aborted", aborted_line(summary)),
        ("sent again", resent_line(summary)),
        ("unexpected", unexpected_line(summary)),
        ("bytes", f"{size_text(summary.sent)} sent, {size_text(summary.received)} received"),
    ]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value:
            grid.add_row(name, Text(value))
    console.print(grid)


def raised_line(summary: Summary) -> str:
    """The exceptions in the code of the steps, and the error rate with them."""
    if not summary.raised:
        return ""
    return f"{raised_text(summary)}; error rate {share_text(summary.error_rate, 1)}"


def raised_text(one: Summary | StepSummary | TagSummary) -> str:
    """How often code raised, and whether the response before it counts as a request."""
    after = one.raised_after
    where = (
        "without a request"
        if not after
        else "after a response"
        if after == one.raised
        else f"{after:,} after a response"
    )
    return f"{counted(one.raised, 'time')}, {where}"


def ends_line(summary: Summary) -> str:
    """How the started iterations ended, unless all were completed."""
    failed, aborted = summary.failed_iterations, summary.aborted_iterations
    if not failed and not aborted:
        return ""
    completed = summary.iterations - failed
    return f"{counted(summary.begun, 'iteration')}: {completed:,} completed, {failed:,} failed, {aborted:,} aborted"


def aborted_line(summary: Summary) -> str:
    """Calls that the end of the run cut off, and their bytes, which no other number includes."""
    if not summary.aborted:
        return ""
    calls = f"{counted(summary.aborted, 'call')} in progress at the end"
    sizes = summary.aborted_sent, summary.aborted_received
    return f"{calls}; {size_text(sizes[0])} sent, {size_text(sizes[1])} received" if any(sizes) else calls


def resent_line(summary: Summary) -> str:
    """Calls that the target may have counted twice."""
    if not summary.resent_calls:
        return ""
    return f"{counted(summary.resent_calls, 'call')} that the server had closed or refused without a response"


def unexpected_line(summary: Summary) -> str:
    """Messages that belong to no call."""
    if not summary.unexpected:
        return ""
    return f"{counted(summary.unexpected, 'message')} that no call was waiting for, discarded"


def iterations_text(summary: Summary) -> str:
    """The number of iterations; with the wanted number, if it was not reached."""
    wanted = [one.get("iterations") for one in summary.header.workflows]
    # a workflow that runs for a time has iterations as well, and they are counted together
    total = sum(one or 0 for one in wanted) if all(wanted) else 0
    if summary.iterations < total:
        return f"{summary.iterations:,} of {counted(total, 'iteration')}"
    return counted(summary.iterations, "iteration")


def length_text(summary: Summary) -> str:
    """The time that rates refer to, and the drain, which is not part of it."""
    load_s = summary.load_s or summary.elapsed_s
    drained_s = round(summary.elapsed_s - load_s, 1)
    load = duration_text(round(load_s, 1)) if load_s >= 0.1 else time_text(load_s)
    return f"{load} (then {duration_text(drained_s)} of drain)" if drained_s > 0 else load


def arrivals_line(summary: Summary) -> str:
    """Open models: arrivals that were due, and those that were not started."""
    if not summary.arrivals:
        return ""
    reasons = ((summary.unbegun, "no user could begin"), (summary.dropped - summary.unbegun, "too many were in flight"))
    parts = [f"{count:,} dropped: {why}" for count, why in reasons if count]
    return ", ".join([f"{summary.arrivals:,} due", *(parts or ["none dropped"])])


def latency_line(latency: Latency | None) -> str:
    """The most important percentiles."""
    if latency is None or not latency.count:
        return ""
    return ", ".join(f"{name} {latency_text(latency, name)}" for name in ("p50", "p95", "p99", "max"))


# tables -------------------------------------------------------------------------------------------------


def _show_steps(summary: Summary, console: Console) -> None:
    if not summary.steps:
        return
    _heading("steps", console)
    several = several_workflows(summary)
    roomy, wide = console.width >= 80, console.width >= 100
    heads = ["requests", "failed"] + ["rate"] * roomy + ["p50"] + ["p90"] * roomy + ["p95", "p99"] + ["max"] * wide
    rows: list[_Row] = []
    for one in summary.steps:
        rows += _number_rows(step_name(one, several=several), one)
        if one.response is not None:
            rows.append(_times("  response", one.response))
    _show_table("step", heads, rows, console)
    if any(many_failed(one) for one in summary.steps):
        console.print(Text(OK_NOTE, style="dim"))
    if any(one.response is not None for one in summary.steps):
        console.print(Text(RESPONSE_NOTE, style="dim"))
    for one in summary.steps:
        name = step_name(one, several=several)
        if one.raised:
            console.print(Text(f"{name}: raised {raised_text(one)}", style="dim"))
        if one.skipped:
            times = counted(one.skipped, "time")
            console.print(Text(f"{name}: skipped {times}, a step before it had raised", style="dim"))


def _show_tags(summary: Summary, console: Console) -> None:
    if not summary.by_tag:
        return
    _heading("by tag", console)
    heads = ["requests", "failed"] + ["rate"] * (console.width >= 80) + ["p50", "p95", "p99"]
    rows: list[_Row] = []
    for one in summary.by_tag:
        rows += _number_rows(tag_name(one), one)
    _show_table("tag", heads, rows, console)
    for one in summary.by_tag:
        if one.raised:
            console.print(Text(f"{tag_name(one)}: raised {raised_text(one)}", style="dim"))


def _show_slices(summary: Summary, console: Console) -> None:
    """The parts of the nodes. Of many, those that were lost and the first ones."""
    if not summary.slices:
        return
    _heading(slices_title(summary), console)
    rows = slice_rows(summary)
    shown = rows if len(rows) <= _SLICES else sorted(rows, key=lambda row: not row.is_lost)[:_SLICES]
    heads = ["cores", "requests", "failed", "clock", "late"]
    heads += ["late windows"] * any(row.late_windows for row in rows) + ["missing"] * any(row.gap for row in rows)
    cells = [
        (
            Text(row.node, style="red" if row.is_lost else ""),
            _cells(
                {"cores": row.cores, "requests": row.requests, "failed": row.failed}
                | {"clock": row.clock, "late": row.late, "late windows": row.late_windows, "missing": row.gap},
                failed=int(row.has_failed),
            ),
        )
        for row in shown
    ]
    _show_table("node", heads, cells, console)
    if len(rows) > len(shown):
        console.print(Text(f"{len(rows) - len(shown):,} more, in the reports as JSON and HTML", style="dim"))
    for line in slice_losses(summary)[:_LINES]:
        console.print(Text(line, style="yellow"))


def _number_rows(name: str, one: StepSummary | TagSummary) -> list[_Row]:
    cells = {"requests": f"{one.requests:,}", "failed": f"{one.failed:,}", "rate": rate_text(one.rate)}
    rows: list[_Row] = [(Text(name), _cells(cells | _latency_cells(one.service), failed=one.failed))]
    if many_failed(one):
        rows.append(_times("  ok", one.ok))
    return rows


def many_failed(one: Summary | StepSummary | TagSummary) -> bool:
    """Whether so much failed that percentiles over all requests may mislead: a refused request can be fast.

    False for a summary of an earlier version, which does not have the times of the successful ones.
    """
    return one.failed > one.requests * _MANY_FAILED and (one.ok is not None or one.failed == one.requests)


def several_workflows(summary: Summary) -> bool:
    """Whether the steps belong to several workflows."""
    return len({one.workflow for one in summary.steps}) > 1


def _times(name: str, latency: Latency | None) -> _Row:
    """A row below another: the times of some of its requests."""
    return Text(name, style="dim"), _cells(dict.fromkeys(("requests", "failed", "rate"), "") | _latency_cells(latency))


def tag_name(one: TagSummary) -> str:
    """A tag as thresholds write it."""
    return one_line(tags_text([(one.tag, one.value)]))


def step_name(one: StepSummary, *, several: bool) -> str:
    """The name of a step; with its workflow, if there are several."""
    return one_line(f"{one.workflow}.{one.step}" if several else one.step)


def _latency_cells(latency: Latency | None) -> dict[str, str]:
    return {name: latency_text(latency, name) for name in ("p50", "p90", "p95", "p99", "max")}


def latency_text(latency: Latency | None, name: str) -> str:
    """One of its numbers, if anything was measured."""
    return time_text(getattr(latency, name) if latency is not None and latency.count else None)


def _show_phases(summary: Summary, console: Console) -> None:
    steps = [one for one in summary.steps if one.phases]
    used = [name for name in PHASES if any(name in one.phases for one in steps)]
    if not used:
        return
    _heading("where the time went, median of the calls that had the phase", console)
    several = several_workflows(summary)
    rows: list[_Row] = []
    for one in steps:
        medians = {name: time_text(each.p50) if (each := one.phases.get(name)) else NONE for name in used}
        rows.append((Text(step_name(one, several=several)), _cells(medians)))
    _show_table("step", used, rows, console)


def _show_errors(summary: Summary, console: Console) -> None:
    if not summary.errors:
        return
    _heading("errors", console)
    kinds = sorted(summary.errors.items(), key=lambda one: -one[1])
    table = _plain_table("right", "fold")
    for kind, count in kinds[:_LINES]:
        text = Text(one_line(kind), style="red")
        for line in example_lines(summary, kind):
            text.append(f"\n{line}", style="default")
        table.add_row(f"{count:,}", text)
    console.print(table)
    if len(kinds) > _LINES:
        console.print(Text(f"{len(kinds) - _LINES:,} more", style="dim"))


def example_lines(summary: Summary, kind: str) -> list[str]:
    """Messages of errors of a kind: if there are several steps, one for each step that had them."""
    steps = sorted((one for one in summary.steps if one.examples.get(kind)), key=lambda one: -one.errors.get(kind, 0))
    if not steps or len(summary.steps) == 1:
        example = summary.examples.get(kind)
        return [f"for example: {one_line(example)}"] if example else []
    several = several_workflows(summary)
    lines = []
    for one in steps[:_STEPS_OF_A_KIND]:
        where = f"in {step_name(one, several=several)} ({one.errors.get(kind, 0):,})"
        lines.append(f"{where}, for example: {one_line(one.examples[kind])}")
    more = len(steps) - _STEPS_OF_A_KIND
    return lines + ([f"and in {counted(more, 'step')} more"] if more > 0 else [])


def _show_checks(summary: Summary, console: Console) -> None:
    if not summary.checks:
        return
    _heading("checks", console)
    rows: list[_Row] = []
    for one in summary.checks:
        name = Text(one_line(f"{one.workflow}.{one.step}"))
        for reason, count in sorted(one.reasons.items(), key=lambda each: -each[1])[:3]:
            name.append(f"\n  {count:,} × {one_line(reason, 120)}", style="dim")
        cells = {"passed": f"{one.passed:,}", "failed": f"{one.failed:,}", "skipped": f"{one.skipped:,}"}
        rows.append((name, _cells(cells, failed=one.failed)))
    _show_table("check", ["passed", "failed", "skipped"], rows, console)


def _show_metrics(summary: Summary, console: Console) -> None:
    if not summary.metrics:
        return
    _heading("metrics", console)
    table = _plain_table("fold", "left", "fold")
    for one in summary.metrics:
        table.add_row(Text(metric_name(one)), Text(one.type, style="dim"), Text(metric_text(one)))
    console.print(table)


def metric_name(one: MetricSummary) -> str:
    """The name of a metric with its tags."""
    tags = ", ".join(f"{key}={value}" for key, value in sorted(one.tags.items()))
    return one_line(f"{one.name} {{{tags}}}" if tags else one.name)


def metric_text(one: MetricSummary) -> str:
    """The value of a metric, by its type."""
    if one.type == "counter":
        return digits(one.value) + ("" if one.rate is None else f", {rate_text(one.rate)}")
    if one.type == "rate":
        return f"{share_text(one.value, 1)} of {one.count:,}"
    if one.type == "gauge":
        return f"{digits(one.value)} at the end, {digits(one.low)} to {digits(one.high)}"
    if one.values is None:
        return "no value"
    shown = ((name, getattr(one.values, name)) for name in ("p50", "p95", "p99", "max"))
    return f"mean {digits(one.value)}, " + ", ".join(f"{name} {digits(value)}" for name, value in shown)


def _show_thresholds(summary: Summary, console: Console) -> None:
    if not summary.thresholds:
        return
    _heading("thresholds", console)
    table = _plain_table("left", "fold", "fold")
    for one in summary.thresholds:
        mark = Text("✓", style="green") if one.passed else Text("✗", style="red")
        table.add_row(mark, Text(one_line(one.text)), Text(threshold_text(one.shown, one.at_s, one.stopped)))
    console.print(table)


def threshold_text(shown: str, at_s: float | None, stopped: bool) -> str:
    """The outcome of a threshold, beside its text."""
    parts = [one_line(shown) or "no value"]
    if at_s is not None:
        parts.append(f"at {duration_text(round(at_s, 1))}")
    if stopped:
        parts.append("ended the run")
    return ", ".join(parts)


# the end ------------------------------------------------------------------------------------------------


def _show_files(summary: Summary, console: Console) -> None:
    """Print workflows that had trouble, outputs that failed, and the written files."""
    lines = [
        Text(f"{one_line(name)}: {'' if ran else 'not run, '}{one_line(why)}")
        for name, why, ran in troubles_of(summary)
    ]
    failed = [one for one in summary.outputs if one.error]
    lines += [Text(f"output {one_line(one.name)}: {one_line(one.error)}", style="red") for one in failed]
    files = [f"written: {one_line(one.name)}" for one in summary.outputs if _is_file(one)]
    if summary.stream:
        files.append(f"recorded: {one_line(summary.stream)}")
    if lines or files:
        console.print()
    for line in lines:
        console.print(line)
    for file in files:
        # only the terminal may fold it: a path with a line break in it cannot be copied
        console.print(Text(file, style="dim"), soft_wrap=True)


def _is_file(one: OutputOutcome) -> bool:
    """Whether an output is a file; a live view or a metric system is not."""
    return not one.error and one.name.partition(" ")[0] in ("html", "json", "csv", "ndjson", "junit", "hdr", "otlp")


def _show_advice(summary: Summary, console: Console) -> None:
    suggestions = advice_for(summary)
    if suggestions:
        console.print()
    for one in suggestions:
        console.print(Text(f"{one.why}:" if one.command else f"{one.why}."))
        if one.command:
            # never folded: it is there to be copied
            console.print(Text(f"  {one.command}", style="cyan"), soft_wrap=True)


def _heading(text: str, console: Console) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _plain_table(*columns: str) -> Table:
    """A table without heads. A column is folded, or on one line and aligned to the left or right."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for column in columns:
        if column == "fold":
            table.add_column(overflow="fold")
        else:
            table.add_column(justify="right" if column == "right" else "left", no_wrap=True)
    return table


def _show_table(name: str, heads: Sequence[str], rows: Sequence[_Row], console: Console) -> None:
    """Without room, names are folded first, then columns are left out. No name is lost, and no number is cut."""
    shown = _fitting(heads, rows, console.width)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="dim")
    table.add_column(name, overflow="fold", min_width=_NAME_LEAST)
    for head in shown:
        table.add_column(head, justify="right", no_wrap=True)
    for text, cells in rows:
        table.add_row(text, *(cells[head] for head in shown))
    console.print(table)


def _fitting(heads: Sequence[str], rows: Sequence[_Row], width: int) -> list[str]:
    """The columns that fit, chosen by importance; in their order."""
    left = width - _NAME_LEAST
    chosen = []
    for head in sorted(heads, key=_IMPORTANCE.index):
        needed = 2 + max(cell_len(head), *(cell_len(cells[head].plain) for _, cells in rows))
        if needed <= left:
            chosen.append(head)
            left -= needed
    return [head for head in heads if head in chosen]


def _cells(texts: Mapping[str, str], *, failed: int = 0) -> dict[str, Text]:
    return {head: Text(text, style="red" if head == "failed" and failed else "") for head, text in texts.items()}
