"""Lists of a batch: its outputs, its missing outputs, and the units that a resume would run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ...cli import printable, table
from ...words import counted
from .. import OutputStatus, UnitToRun, Validation
from ..report.text import DEFECT_COLUMNS, OUTPUT_COLOURS

_STATES = ("present", "missing", "corrupt", "unreadable")
#: what differs between units with the same defect: sizes and digests
_OWN = re.compile(r"[0-9a-f]{12}…|\d[\d,]*")


def show_outputs(
    listed: Sequence[OutputStatus], counts: Mapping[str, int], matching: int, place: str, console: Console
) -> None:
    """Print outputs with their states and paths."""
    totals = [f"{counts[state]:,} {state}" for state in _STATES if counts.get(state)]
    console.print(Text(f"{', '.join(totals) or 'no outputs'}, in {printable(place)}"), soft_wrap=True)
    for one in listed:
        line = Text(f"{one.state:<10} ", style=OUTPUT_COLOURS.get(one.state, "")).append(
            printable(one.path), style="default"
        )
        console.print(line.append(f"  {printable(one.detail)}" if one.detail else "", style="dim"), soft_wrap=True)
    if matching > len(listed):
        console.print(Text(f"{matching - len(listed):,} more; --all shows them", style="dim"))


def show_lacking(validation: Validation, console: Console) -> None:
    """Print the first outputs that a validation found missing or corrupt, and whether other code made some units."""
    if validation.mixed:
        console.print(Text(validation.mixed, style="yellow"))
    if not validation.first:
        return
    console.print(table(DEFECT_COLUMNS, validation.first))
    rest = validation.missing + validation.corrupt + validation.unreadable - len(validation.first)
    if rest > 0:
        console.print(Text(f"{rest:,} more; mainstay jobs outputs lists them", style="dim"))


def show_to_run(units: Sequence[UnitToRun], names: Sequence[str], limit: int, console: Console) -> None:
    """Print the units that a resume would run, grouped by kind and reason."""
    if not units:
        console.print("nothing to do: all outputs are present and intact", style="green")
        return
    runs = [one for one in units if one.run]
    simulations = sum(one.group == 0 for one in runs)
    later = [one for one in units if not one.run]
    parts = [counted(simulations, "unit")] if simulations else []
    parts += [f"{len(runs) - simulations:,} of its aggregations"] if len(runs) > simulations else []
    console.print(Text(f"a resume would run {' and '.join(parts) or 'nothing'}", style="bold"))
    room = limit
    for (group, _), some in _grouped(runs).items():
        what = "" if group == 0 else f"{printable(names[group])}: "
        console.print(Padding(Text(f"{what}{printable(some[0].why)}: {len(some):,}"), (1, 0, 0, 2)))
        for one in islice(some, room):
            console.print(Text(f"    {printable(one.unit)}"), soft_wrap=True)
        room -= min(room, len(some))
    if len(runs) > limit:
        console.print(Text(f"    {len(runs) - limit:,} more; --limit shows them", style="dim"))
    if later:
        console.print()
        for (group, _), some in _grouped(later).items():
            line = f"{printable(names[group])}: {len(some):,} cannot be made now: their inputs are incomplete"
            console.print(Text(f"  {line}; made when they are complete"))


def to_run_data(job_id: str, units: Sequence[UnitToRun], names: Sequence[str]) -> dict[str, Any]:
    """The same for programs."""
    data = [{**msgspec.to_builtins(one), "of": names[one.group]} for one in units]
    return {"id": job_id, "run": [one for one in data if one["run"]], "left": [one for one in data if not one["run"]]}


def _grouped(units: Sequence[UnitToRun]) -> dict[tuple[int, str], list[UnitToRun]]:
    """Units by group of the manifest and reason, apart from sizes and digests."""
    groups: dict[tuple[int, str], list[UnitToRun]] = {}
    for one in units:
        groups.setdefault((one.group, _OWN.sub("#", one.why)), []).append(one)
    return groups
