"""Lists of a batch: its outputs, what lacks, and what a resume would run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...cli.common import printable
from ...words import counted
from .. import Output, ToRun, Validation

_STATES = ("present", "missing", "corrupt", "unreadable")
_COLOURS = {"present": "green", "missing": "red", "corrupt": "red", "unreadable": "yellow"}
#: what differs between units that lack alike: sizes and digests
_OWN = re.compile(r"[0-9a-f]{12}…|\d[\d,]*")


def show_outputs(
    kept: Sequence[Output], counts: Mapping[str, int], matching: int, place: str, console: Console
) -> None:
    """Outputs with their states and paths."""
    told = [f"{counts[state]:,} {state}" for state in _STATES if counts.get(state)]
    console.print(Text(f"{', '.join(told) or 'no outputs'}, in {printable(place)}"), soft_wrap=True)
    for one in kept:
        line = Text(f"{one.state:<10} ", style=_COLOURS.get(one.state, "")).append(printable(one.path), style="default")
        console.print(line.append(f"  {printable(one.detail)}" if one.detail else "", style="dim"), soft_wrap=True)
    if matching > len(kept):
        console.print(Text(f"{matching - len(kept):,} more; --all shows them", style="dim"))


def show_lacking(found: Validation, console: Console) -> None:
    """The first of what a validation found lacking, and whether other code made some of it."""
    if found.mixed:
        console.print(Text(found.mixed, style="yellow"))
    if not found.first:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for head in ("state", "unit", "output", "what is wrong"):
        table.add_column(head, overflow="fold")
    for one in found.first:
        state = Text(one.state, style=_COLOURS.get(one.state, ""))
        table.add_row(state, *(Text(printable(text)) for text in (one.unit, one.output, one.detail)))
    console.print(table)
    rest = found.missing + found.corrupt + found.unreadable - len(found.first)
    if rest > 0:
        console.print(Text(f"{rest:,} more; mainstay jobs outputs lists them", style="dim"))


def show_to_run(units: Sequence[ToRun], names: Sequence[str], limit: int, console: Console) -> None:
    """What a resume would run, grouped by what it is and why."""
    if not units:
        console.print("nothing to do: all its outputs are there, and intact", style="green")
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
            told = f"{printable(names[group])}: {len(some):,} cannot be made now, for their inputs are incomplete"
            console.print(Text(f"  {told}; made once these are there"))


def to_run_data(job_id: str, units: Sequence[ToRun], names: Sequence[str]) -> dict[str, Any]:
    """The same for programs."""

    def told(one: ToRun) -> dict[str, Any]:
        return {**msgspec.to_builtins(one), "of": names[one.group]}

    return {
        "id": job_id,
        "run": [told(one) for one in units if one.run],
        "left": [told(one) for one in units if not one.run],
    }


def _grouped(units: Sequence[ToRun]) -> dict[tuple[int, str], list[ToRun]]:
    """By group of the manifest and by what is wrong, whatever the sizes and digests."""
    made: dict[tuple[int, str], list[ToRun]] = {}
    for one in units:
        made.setdefault((one.group, _OWN.sub("#", one.why)), []).append(one)
    return made
