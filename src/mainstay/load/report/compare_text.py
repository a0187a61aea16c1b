"""A comparison of two runs in a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...lifecycle import time_text as instant_text
from ..stats.model import Header
from .changes import Judgement, MetricChange, value_text
from .compare import Comparison
from .words import change_text, counted, one_line

_STYLES: dict[Judgement, str] = {"better": "green", "worse": "bold red", "same": "dim", "unclear": "yellow"}


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print the comparison: the conclusion first."""
    style = "bold yellow" if comparison.undecided else "bold red" if comparison.worse else "bold green"
    console.print(Text(conclusion(comparison), style=style))
    for reason in (*comparison.reasons, *comparison.notes):
        console.print(Padding(Text(one_line(reason)), (0, 0, 0, 2)))
    console.print(Text(f"A  {run_name(comparison.a)}\nB  {run_name(comparison.b)}", style="dim"))
    for step in comparison.steps:
        if step.changes:
            console.print()
            console.print(Text(one_line(step.name), style="bold"))
            console.print(_table(step.changes))
    for only, where in ((comparison.only_a, "A"), (comparison.only_b, "B")):
        if only:
            console.print(Text(f"only in {where}: {one_line(', '.join(only))}"))
    console.print(Text(f"\n{rule(comparison)}", style="dim"))


def conclusion(comparison: Comparison) -> str:
    """The result in one line."""
    if not any(step.changes for step in comparison.steps):
        return "Nothing to compare"
    if not comparison.comparable:
        return "Cannot tell: the runs are not comparable"
    changed = [
        f"{counted(count, 'number')} got {which}"
        for count, which in ((comparison.worse, "worse"), (comparison.better, "better"))
        if count
    ]
    if comparison.unclear:
        changed.append(f"{counted(comparison.unclear, 'number')} changed with too few requests to judge")
    if not changed:
        return "No difference: no number changed by more than the tolerance and chance"
    return f"{'Cannot tell' if comparison.undecided else 'B compared with A'}: {', '.join(changed)}"


def judgement_text(change: MetricChange) -> str:
    """The judgement of a change in a few words."""
    if change.judgement == "unclear":
        return f"? cannot tell, {change.note}"
    if change.judgement == "same":
        return f"≈ {change.note}" if change.note else "= same"
    return f"{'✓' if change.judgement == 'better' else '✗'} {change.judgement}"


def rule(comparison: Comparison) -> str:
    """The rule by which changes are judged."""
    return (
        f"A change counts if it is more than {comparison.tolerance * 100:g} % and more than chance: the ranges in "
        "which the two values lie with 95 % certainty do not overlap. A maximum counts if several requests were slower "
        "than the slowest one of the other run."
    )


def run_name(header: Header) -> str:
    """The name of a run, and when it started."""
    return one_line(f"{header.name}, {instant_text(header.started_ms)}")


def _table(changes: list[MetricChange]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("", min_width=12, overflow="fold")
    for head in ("A", "B", "change"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in changes:
        a, b = value_text(one)
        style = _STYLES[one.judgement]
        judged = Text(judgement_text(one), style=style)
        table.add_row(one.metric, a, b, Text(change_text(one.change), style=style), judged)
    return table
