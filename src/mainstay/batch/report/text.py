"""The report of a batch in a terminal, with a heat map as wide as there is room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...cli import coloured, print_command, printable
from ...clock import duration_text
from ...control.explain import Advice
from ...lifecycle import time_text
from ..advice import batch_advice
from ..spec import UnitCounts
from .heat_map import Cell, Facet, HeatMap, MapAxis, heat_map, params_text
from .model import BatchReport, Level, OutputSummary, left_out

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
    facts = [
        ("why", report.reason),
        ("sets", f"{report.sets:,}"),
        ("units", f"{report.total:,}: {ran}{more}"),
        ("outputs", _outputs_text(report.outputs)),
        *(
            (name, f"{made_text(one)}, {one.failed:,} failed" + (f", {one.idle:,} lack inputs" if one.idle else ""))
            for name, one in report.aggregations.items()
        ),
        ("took", took),
        ("kept in", report.place),
        ("code", report.code + (f"; {report.mixed}" if report.mixed else "")),
        ("repairs", report.resumed_from or ""),
    ]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value:
            grid.add_row(printable(name), Text(printable(value)))
    console.print(grid)


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
    broken = report.broken_sets
    rows = [
        (
            Text(_SYMBOLS[one.level], style=_COLOURS[one.level]),
            Text(f"{one.intact:,} of {one.units:,}"),
            Text(printable(params_text(one.params))),
        )
        for one in broken[:_LINES]
    ]
    _show_list("sets that are not whole", ("", "intact", "parameters"), rows, console, total=len(broken))


def _show_troubles(report: BatchReport, console: Console) -> None:
    rows = [
        (
            Text(f"{one.units:,}"),
            Text(printable(f"{one.type}: {one.message}"), style="red"),
            Text(printable(one.example)),
        )
        for one in report.troubles[:_LINES]
    ]
    _show_list("errors of units", ("units", "error", "for instance"), rows, console)
    listed, others = left_out(report.troubles[_LINES:]), report.other_troubles
    for left in (listed, others):
        if left is not None:
            console.print(Text(f"  {left}{'; --json lists them' if left is listed else ''}", style="dim"))


def _show_lacking(report: BatchReport, console: Console) -> None:
    rows = [
        (Text(one.state, style="red"), *(Text(printable(text)) for text in (one.unit, one.output, one.detail)))
        for one in report.lacking[:_LINES]
    ]
    total = report.outputs.missing + report.outputs.corrupt + report.outputs.unreadable
    heads = ("state", "unit", "output", "what is wrong")
    _show_list("missing or corrupt outputs", heads, rows, console, total=total)


def _show_validations(report: BatchReport, console: Console) -> None:
    rows = [
        (
            Text(time_text(one.at_ms), style="dim"),
            coloured(one.verdict),
            *(Text(f"{n:,}") for n in (one.present, one.missing, one.corrupt)),
        )
        for one in report.validations[-_LINES:]
    ]
    heads = ("when", "verdict", "present", "missing", "corrupt")
    _show_list("validations", heads, rows, console, total=len(report.validations))


def list_table(heads: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """An empty table with these columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold", justify="right" if head in numbers else "left")
    return table


def _show_list(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[Text]], console: Console, *, total: int = 0
) -> None:
    """Print a heading and a table; nothing without rows. `total` counts rows that are not listed, too."""
    if not rows:
        return
    _heading(title, console)
    table = list_table(heads, ("units", "present", "missing", "corrupt"))
    for row in rows:
        table.add_row(*row)
    console.print(Padding(table, (0, 0, 0, 2)))
    if total > len(rows):
        console.print(Text(f"  {total - len(rows):,} more", style="dim"))


def _heading(text: str, console: Console) -> None:
    console.print()
    console.print(Text(text, style="bold"))
