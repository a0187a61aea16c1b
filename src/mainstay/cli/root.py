"""The command group: every command, its errors as messages, its version.

A command lives in its own module, which has a function `register(app)`; add the module to the tuple `COMMANDS` below
and it is there. Commands raise `MainstayError`s as they come: the group shows them as one red line on stderr and exits
with 2.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from ..errors import MainstayError
from . import batch, check, jobs, limits, machine, outputs, queues, schedules, stats, store, submit, worker, workers
from .exits import EXIT_CODES, FAILED

COMMANDS = (worker, submit, batch, stats, jobs, queues, limits, schedules, workers, store, outputs, check, machine)


class Group(TyperGroup):
    """Shows our own errors as messages. Anything else is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except MainstayError as error:
            first, *story = str(error).splitlines() or [error.code]
            console = Console(stderr=True, highlight=False, soft_wrap=True)
            console.print(f"error: {first}", style="bold red", markup=False)
            for line in story:
                console.print(line, style="dim", markup=False)
            raise typer.Exit(FAILED) from None


_EPILOG = "[bold]Exit codes[/bold]\n\n" + "\n".join(f"  {code:<3} {meaning}" for code, meaning in EXIT_CODES.items())

app = typer.Typer(
    name="mainstay",
    cls=Group,
    help="Jobs whose fate you can prove: look at them, move them, and check them.",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mainstay {version('mainstay')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options that stand before a command."""


for _module in COMMANDS:
    _module.register(app)


__all__ = ["COMMANDS", "Group", "app"]
