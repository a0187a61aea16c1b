"""`mainstay machine`: print the lifecycle tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from ..lifecycle import JOB, UNIT
from ..lifecycle.diagram import FLAG_MEANINGS, data, mermaid, text
from .commands import command
from .common import JsonOption, print_json, screen

_TABLES = {table.name: table for table in (JOB, UNIT)}


class Format(StrEnum):
    """Output format of a table."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


class Lifecycle(StrEnum):
    """Lifecycle table."""

    JOB = "job"
    UNIT = "unit"


def machine(
    form: Annotated[Format, typer.Option("--format", "-f", help="Output format.")] = Format.TEXT,
    which: Annotated[
        Lifecycle, typer.Option("--table", "-t", help="The lifecycle of jobs or of batch units.")
    ] = Lifecycle.JOB,
    as_json: JsonOption = False,
) -> None:
    """Print the lifecycle: every state, its flags, and the states it may change to.

    The output is the table that the program enforces.

    [bold]Examples[/bold]

      mainstay machine --table unit
      mainstay machine --format mermaid
      mainstay machine --json | jq .
    """
    table = _TABLES[which.value]
    if as_json or form is Format.JSON:
        print_json(data(table))
    elif form is Format.MERMAID:
        typer.echo(mermaid(table))
    else:
        _print_text(which)


def _print_text(which: Lifecycle) -> None:
    console = screen()
    heading, rule, *rest = text(_TABLES[which.value], width=console.width).splitlines()
    console.print(heading, style="bold", markup=False)
    console.print("\n".join([rule, *rest]), markup=False)
    console.print()
    legend = Table.grid(padding=(0, 0, 0, 2))
    for flag, meaning in FLAG_MEANINGS.items():
        legend.add_row(flag, meaning, style="dim")
    console.print(legend)


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "machine")(machine)
