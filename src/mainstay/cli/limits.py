"""`mainstay limits`: how many jobs of a concurrency key may run at a time."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..control import Control, overview
from ..control.overview import LimitOverview
from ..words import counted
from . import completion
from .command import command
from .common import JsonOption, aside, looking, print_json, printable, screen, working
from .target import Where

group = typer.Typer(
    help="List, set and clear limits of concurrency keys.", no_args_is_help=True, rich_markup_mode="rich"
)

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The concurrency key.", autocompletion=completion.limits)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="limits")


@command(group, "list")
def list_limits(where: Where, as_json: JsonOption = False) -> None:
    """List the limits: how many jobs of each concurrency key may run at a time, and how many run now.

    A key without a limit is not listed: its jobs run as soon as a worker is free.

    Exit codes: 0 fine (also when there are none), 2 error.

    [bold]Examples[/bold]

      mainstay limits list
      mainstay limits list --json | jq '.limits[] | select(.held >= .limit)'
    """
    seen = looking(where, overview.limits)
    if as_json:
        print_json({"limits": msgspec.to_builtins(seen)})
    else:
        _show(seen, screen())


@command(group, "set")
def set_limit(
    where: Where,
    key: KeyArgument,
    most: Annotated[int, typer.Argument(metavar="N", help="Jobs that may run at a time; 1 or more.")],
    as_json: JsonOption = False,
) -> None:
    """Limit how many jobs of a concurrency key may run at a time, over all queues and workers.

    The limit applies to new claims. Running jobs continue, even if there are more than the limit.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay limits set tenant-7 3
    """
    working(where, lambda control: control.operations.set_limit(key, most))
    if as_json:
        print_json({"key": key, "limit": most})
    else:
        typer.echo(f"key {printable(key)}: at most {counted(most, 'job')} at a time")


@command(group, "clear")
def clear_limit(where: Where, key: KeyArgument, as_json: JsonOption = False) -> None:
    """Remove the limit of a concurrency key: its jobs run as soon as a worker is free.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay limits clear tenant-7
    """

    async def work(control: Control) -> dict[str, int]:
        before = await control.store.limits()
        await control.operations.set_limit(key, None)
        return before

    before = working(where, work)
    if key not in before:
        there = ", ".join(map(printable, sorted(before))) or "none"
        aside(f"key {printable(key)} had no limit; is it right? there are {there}")
    if as_json:
        print_json({"key": key, "limit": None})
    else:
        typer.echo(f"key {printable(key)}: no limit")


def _show(seen: list[LimitOverview], console: Console) -> None:
    if not seen:
        console.print("no limits: every concurrency key may have as many jobs at a time as there is room for")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("key", overflow="fold")
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("held now", justify="right", no_wrap=True)
    for each in seen:
        held = Text(f"{each.held:,}{'' if each.counted else '+'}", style="yellow" if each.held >= each.limit else "")
        table.add_row(Text(printable(each.key)), f"{each.limit:,}", held)
    console.print(table)
