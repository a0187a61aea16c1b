"""`mainstay limits`: how many jobs of a concurrency key may run at a time."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..control import Control, overview
from ..control.overview import LimitOverview
from ..stores import JobStore
from ..words import counted
from . import completion
from .commands import CommandOutput, command, command_group
from .common import aside, printable
from .tables import Column, table

group = command_group("List, set and clear limits of concurrency keys.")

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The concurrency key.", autocompletion=completion.limits)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="limits")


@command(group, "list")
async def list_limits(store: JobStore) -> CommandOutput:
    """List the limits: how many jobs of each concurrency key may run at a time, and how many run now.

    A key without a limit is not listed: its jobs run as soon as a worker is free.

    Exit codes: 0 fine (also when there are none), 2 error.

    [bold]Examples[/bold]

      mainstay limits list
      mainstay limits list --json | jq '.limits[] | select(.held >= .limit)'
    """
    limits = await overview.limits(store)
    return CommandOutput({"limits": limits}, lambda console: _show(limits, console))


@command(group, "set")
async def set_limit(
    control: Control,
    key: KeyArgument,
    most: Annotated[int, typer.Argument(metavar="N", help="Jobs that may run at a time; 1 or more.")],
) -> CommandOutput:
    """Limit how many jobs of a concurrency key may run at a time, over all queues and workers.

    The limit applies to new claims. Running jobs continue, even if there are more than the limit.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay limits set tenant-7 3
    """
    await control.operations.set_limit(key, most)
    return CommandOutput({"key": key, "limit": most}, f"key {printable(key)}: at most {counted(most, 'job')} at a time")


@command(group, "clear")
async def clear_limit(control: Control, key: KeyArgument) -> CommandOutput:
    """Remove the limit of a concurrency key: its jobs run as soon as a worker is free.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay limits clear tenant-7
    """
    before = await control.store.limits()
    await control.operations.set_limit(key, None)
    if key not in before:
        known = ", ".join(map(printable, sorted(before))) or "none"
        aside(f"key {printable(key)} had no limit; is the name right? Keys with a limit: {known}")
    return CommandOutput({"key": key, "limit": None}, f"key {printable(key)}: no limit")


def _show(limits: list[LimitOverview], console: Console) -> None:
    if not limits:
        console.print("no limits: workers run as many jobs of a concurrency key as they have room for")
        return
    column = Column[LimitOverview]
    columns = (
        column("key", lambda limit: limit.key),
        column("limit", lambda limit: f"{limit.limit:,}", right=True),
        column("held now", _held, right=True),
    )
    console.print(table(columns, limits))


def _held(limit: LimitOverview) -> Text:
    at_least = "" if limit.counted else "+"
    return Text(f"{limit.held:,}{at_least}", style="yellow" if limit.held >= limit.limit else "")
