"""The report of a batch in a terminal, with a heat map as wide as there is room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ...cli import Column, coloured, facts, print_command, printable, table
from ...clock import duration_text
from ...control.explain import Advice
from ...lifecycle import time_text
from ..advice import batch_advice
from ..spec import UnitCounts
from ..validation_result import OutputStatus
from .heat_map import Cell, Facet, HeatMap, MapAxis, heat_map, params_text
from .model import BatchReport, Level, OutputSummary, SetOutcome, Trouble, ValidationCounts, left_out

T = TypeVar("T")

#: limits of a map
_ROWS, _FACETS = 24, 6
#: lines of each list
_LINES = 10
#: the widest map where lines have no limit
_WIDEST = 120
_SYMBOLS: dict[Level, str] = {"all": "██", "most": "▓▓", "half": "▒▒", "few": "░░", "none": "╳╳"}
_COLOURS: dict[Level, str] = {
    "all": "blue", "most": "cyan", "half": "white", "few": "yellow", "none": "bright_red",
}  # fmt: skip
_KEY: dict[Level, str] = {"all": "all", "most": "⅔ or more", "half": "⅓ or more", "few": "fewer", "none": "none"}

#: colours of the states of an output
OUTPUT_COLOURS = {"present": "green", "missing": "red", "corrupt": "red", "unreadable": "yellow"}
#: the columns of a table of missing or corrupt outputs
DEFECT_COLUMNS: tuple[Column[OutputStatus], ...] = (
    Column("state", lambda one: Text(one.state, style=OUTPUT_COLOURS.get(one.state, ""))),
    Column("unit", lambda one: one.unit),
    Column("output", lambda one: one.output),
    Column("what is wrong", lambda one: one.detail),
)


def show_report(report: BatchReport, console: Console, *, again: Callable[[str], str]) -> None:
    """Print the whole report. `again` makes a command work on the same store."""
    head = Text(printable(report.study), style="bold").append(" ").append_text(coloured(report.status))
    console.print(head)
    console.print(Text(report.id, style="dim"), soft_wrap=True)
    _show_facts(report, console)
    _show_map(report, console)
    _show_sets(report, console)
    _show_troubles(report, console)
    _show_lacking(report, console)
    _show_validations(report, console)
    show_advice(batch_advice(report.id, report.status, lacking=report.outputs.lacking), console, again=again)


def show_advice(advice: Sequence[Advice], console: Console, *, again: Callable[[str], str]) -> None:
    """Print commands to try."""
    if not advice:
        return
    _heading("what to do", console)
    for one in advice:
        console.print(Padding(Text(f"{one.why}:"), (0, 0, 0, 2)))
        print_command(again(one.command), console, indent=4)


def made_text(one: UnitCounts) -> str:
    """How many of an aggregation were made, apart from those whose outputs existed."""
    before = one.there + one.skipped
    return f"{one.succeeded:,} made" + (f", {before:,} already present" if before else "")


def _outputs_text(outputs: OutputSummary) -> str:
    """The outputs by state, in one line."""
    if outputs.source == "unknown":
        return f"{outputs.expected:,} expected; they could not be checked: {outputs.why}"
    parts = ", ".join([f"{outputs.present:,} of {outputs.expected:,} present", *outputs.gaps])
    return parts + (" (by name and size)" if outputs.source == "storage" else "")


def _show_facts(report: BatchReport, console: Console) -> None:
    units = report.units
    ran = f"{units.succeeded:,} run, {units.there + units.skipped:,} already present, {units.failed:,} failed"
    open_ = units.waiting + units.running
    more = f", {open_:,} not done" if open_ else f", {units.cancelled:,} ended early" if units.cancelled else ""
    again = "" if report.rounds <= 1 else f", started {report.rounds} times; counts are those of the last"
    took = f"{duration_text(max(0.001, round(report.took_s, 1)))}{again}" if report.rounds else ""
    rows = [
        ("why", report.reason),
        ("sets", f"{report.sets:,}"),
        ("units", f"{report.total:,}: {ran}{more}"),
        ("outputs", _outputs_text(report.outputs)),
        *(
            (
                printable(name),
                f"{made_text(one)}, {one.failed:,} failed" + (f", {one.idle:,} lack inputs" if one.idle else ""),
            )
            for name, one in report.aggregations.items()
        ),
        ("took", took),
        ("kept in", report.place),
        ("code", report.code + (f"; {report.mixed}" if report.mixed else "")),
        ("repairs", report.resumed_from or ""),
    ]
    console.print(facts(rows))


# the map ------------------------------------------------------------------------------------------------


def _show_map(report: BatchReport, console: Console) -> None:
    if not report.outcomes:
        return
    width = min(console.width, _WIDEST)
    parameter_map = _fitting(report, width)
    _heading("parameter sets by outcome", console)
    for facet in parameter_map.facets:
        if facet.title:
            console.print(Text(printable(facet.title), style="dim"))
        for line in _map_lines(parameter_map, facet, width):
            console.print(line, soft_wrap=True)
    key = Text("units intact: ", style="dim")
    for level, symbol in _SYMBOLS.items():
        key.append(symbol, style=_COLOURS[level]).append(f" {_KEY[level]}  ", style="dim")
    console.print(key)
    for note in parameter_map.notes:
        console.print(Text(printable(note), style="dim"))


def _fitting(report: BatchReport, width: int) -> HeatMap:
    """The map with as many columns as fit beside the labels of its rows."""
    columns = max(1, width // 3)
    while True:
        parameter_map = heat_map(report.outcomes, columns=columns, rows=_ROWS, facets=_FACETS)
        if columns <= 1 or _margin(parameter_map) + len(parameter_map.x.labels) * 3 <= width:
            return parameter_map
        columns = min(columns - 1, len(parameter_map.x.labels) * 7 // 8)


def _margin(parameter_map: HeatMap) -> int:
    return max(len(label) for label in (parameter_map.y.name, *parameter_map.y.labels)) + 1


def _map_lines(parameter_map: HeatMap, facet: Facet, width: int) -> list[Text]:
    """One map as lines, with the values of its columns above and of its rows beside it."""
    margin = _margin(parameter_map)
    step = max(2, *(len(label) for label in parameter_map.x.labels)) + 1
    whole = margin + step * len(parameter_map.x.labels) <= width
    step = step if whole else 3
    heads = [printable(line) for line in _heads(parameter_map.x, parameter_map.y, margin, step, whole=whole)]
    lines = [Text(line if len(line) <= width else f"{line[: width - 1]}…", style="dim") for line in heads]
    for label, row in zip(parameter_map.y.labels, facet.rows, strict=True):
        line = Text(printable(label).rjust(margin - 1) + " ", style="dim")
        for cell in row:
            line.append_text(_cell(cell, step))
        line.rstrip()
        lines.append(line)
    return lines


def _heads(x: MapAxis, y: MapAxis, margin: int, step: int, *, whole: bool) -> list[str]:
    if not x.name:
        return []
    if whole:
        names = f"{y.name.rjust(margin - 1)} {x.name}"
        return [names, " " * margin + "".join(label.ljust(step) for label in x.labels).rstrip()]
    # no room for every label: the first and the last
    return [f"{y.name.rjust(margin - 1)} {x.name}: {x.labels[0]} to {x.labels[-1]}, {len(x.labels)} columns"]


def _cell(cell: Cell | None, step: int) -> Text:
    if cell is None:
        return Text("·".ljust(step), style="dim")
    return Text(_SYMBOLS[cell.level], style=_COLOURS[cell.level]).append(" " * (step - 2))


# lists --------------------------------------------------------------------------------------------------


def _show_sets(report: BatchReport, console: Console) -> None:
    column = Column[SetOutcome]
    columns = (
        column("", lambda one: Text(_SYMBOLS[one.level], style=_COLOURS[one.level])),
        column("intact", lambda one: f"{one.intact:,} of {one.units:,}"),
        column("parameters", lambda one: params_text(one.params)),
    )
    broken = report.broken_sets
    _show_list("sets that are not whole", columns, broken[:_LINES], console, total=len(broken))


def _show_troubles(report: BatchReport, console: Console) -> None:
    column = Column[Trouble]
    columns = (
        column("units", lambda one: f"{one.units:,}", right=True),
        column("error", lambda one: Text(printable(f"{one.type}: {one.message}"), style="red")),
        column("for instance", lambda one: one.example),
    )
    _show_list("errors of units", columns, report.troubles[:_LINES], console)
    listed, others = left_out(report.troubles[_LINES:]), report.other_troubles
    for left in (listed, others):
        if left is not None:
            console.print(Text(f"  {left}{'; --json lists them' if left is listed else ''}", style="dim"))


def _show_lacking(report: BatchReport, console: Console) -> None:
    total = report.outputs.missing + report.outputs.corrupt + report.outputs.unreadable
    _show_list("missing or corrupt outputs", DEFECT_COLUMNS, report.lacking[:_LINES], console, total=total)


def _show_validations(report: BatchReport, console: Console) -> None:
    column = Column[ValidationCounts]
    columns = (
        column("when", lambda one: Text(time_text(one.at_ms), style="dim")),
        column("verdict", lambda one: coloured(one.verdict)),
        column("present", lambda one: f"{one.present:,}", right=True),
        column("missing", lambda one: f"{one.missing:,}", right=True),
        column("corrupt", lambda one: f"{one.corrupt:,}", right=True),
    )
    validations = report.validations
    _show_list("validations", columns, validations[-_LINES:], console, total=len(validations))


def _show_list(
    title: str, columns: Sequence[Column[T]], rows: Sequence[T], console: Console, *, total: int = 0
) -> None:
    """Print a heading and a table; nothing without rows. `total` counts rows that are not listed, too."""
    if not rows:
        return
    _heading(title, console)
    console.print(Padding(table(columns, rows), (0, 0, 0, 2)))
    if total > len(rows):
        console.print(Text(f"  {total - len(rows):,} more", style="dim"))


def _heading(text: str, console: Console) -> None:
    console.print()
    console.print(Text(text, style="bold"))
