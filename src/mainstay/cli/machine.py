"""`mainstay machine`: print the lifecycle tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from ..lifecycle import JOB, UNIT
from ..lifecycle.diagram import FLAG_MEANINGS, data, mermaid, text

_TABLES = {table.name: table for table in (JOB, UNIT)}

_HELP = """Print the lifecycle: every state, its flags, and what it may become.

This is the table the machine enforces, not a description of it.

[bold]Examples[/bold]

  mainstay machine                           the jobs' table
  mainstay machine --table unit              the units' table
  mainstay machine --format mermaid          a diagram for your own documents
  mainstay machine --format json | jq .      for programs
"""


class Format(StrEnum):
    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


class Which(StrEnum):
    JOB = "job"
    UNIT = "unit"


def machine(
    form: Annotated[Format, typer.Option("--format", "-f", help="How to print it.")] = Format.TEXT,
    which: Annotated[Which, typer.Option("--table", "-t", help="Which lifecycle.")] = Which.JOB,
) -> None:
    table = _TABLES[which.value]
    if form is Format.MERMAID:
        typer.echo(mermaid(table))
    elif form is Format.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(data(table)), indent=2))
    else:
        _print_text(which)


def _print_text(which: Which) -> None:
    console = Console(highlight=False)
    heading, rule, *rest = text(_TABLES[which.value], width=console.width).splitlines()
    console.print(heading, style="bold", markup=False)
    console.print("\n".join([rule, *rest]), markup=False)
    console.print()
    for flag, meaning in FLAG_MEANINGS.items():
        console.print(f"  {flag:<9}  {meaning}", style="dim", markup=False)


def register(app: typer.Typer) -> None:
    app.command(help=_HELP)(machine)
