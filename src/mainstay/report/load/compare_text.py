"""A comparison of two runs in a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...lifecycle import time_text as instant_text
from ...load.stats.model import Header
from .changes import Change, Judgement, value_text
from .compare import Comparison
from .words import change_text, counted, one_line

_STYLES: dict[Judgement, str] = {"better": "green", "worse": "bold red", "same": "dim"}
_MARKS: dict[Judgement, str] = {"better": "✓", "worse": "✗", "same": "="}


def show_comparison(found: Comparison, console: Console) -> None:
    """All of it: what came out first."""
    style = "bold red" if found.worse else "bold green" if found.comparable else "bold"
    console.print(Text(conclusion(found), style=style))
    if not found.comparable:
        console.print(Text("NOT COMPARABLE", style="bold yellow"))
    for reason in (*found.reasons, *found.notes):
        console.print(Padding(Text(one_line(reason)), (0, 0, 0, 2)))
    console.print(Text(f"A  {run_name(found.a)}\nB  {run_name(found.b)}", style="dim"))
    for step in found.steps:
        if step.changes:
            console.print()
            console.print(Text(one_line(step.name), style="bold"))
            console.print(_table(step.changes))
    for only, where in ((found.only_a, "A"), (found.only_b, "B")):
        if only:
            console.print(Text(f"only in {where}: {one_line(', '.join(only))}"))
    console.print(Text(f"\n{rule(found)}", style="dim"))


def conclusion(found: Comparison) -> str:
    """What came out, in a line."""
    if not any(step.changes for step in found.steps):
        return "There is nothing to compare"
    if found.unsaid:
        return "Nothing can be said: the runs cannot be compared"
    if not found.better and not found.worse:
        return "B is as A: nothing changed by more than the tolerance"
    parts = [
        f"{counted(count, 'number')} got {which}"
        for count, which in ((found.worse, "worse"), (found.better, "better"))
        if count
    ]
    return f"B beside A: {', '.join(parts)}"


def rule(found: Comparison) -> str:
    """By what was judged."""
    return (
        f"A change counts beyond {found.tolerance * 100:g} %, and if it is more than chance: the ranges in which the "
        "two values lie with 95 % certainty do not overlap."
    )


def run_name(header: Header) -> str:
    """What a run is called, and when it began."""
    return one_line(f"{header.name}, {instant_text(header.started_ms)}")


def _table(changes: list[Change]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("", min_width=12, overflow="fold")
    for head in ("A", "B", "change"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in changes:
        a, b = value_text(one)
        told = f"{_MARKS[one.judgement]} {one.judgement}" + (f", {one.note}" if one.note else "")
        style = _STYLES[one.judgement]
        table.add_row(one.metric, a, b, Text(change_text(one.change), style=style), Text(told, style=style))
    return table
