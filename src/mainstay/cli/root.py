"""The command group: every command, its errors as messages, its version.

A command lives in a module that has a function `register(app)`; `COMMANDS` maps the command's name to that module.
Commands raise `MainstayError`s as they come: the group shows them as one red line on stderr and exits with 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from ..errors import MainstayError
from .exits import EXIT_CODES, FAILED

COMMANDS = {
    "worker": "mainstay.cli.worker",
    "serve": "mainstay.cli.serve",
    "submit": "mainstay.task.cli.submit",
    "batch": "mainstay.batch.cli.commands",
    "load": "mainstay.load.cli.commands",
    "stats": "mainstay.cli.stats",
    "jobs": "mainstay.cli.jobs",
    "queues": "mainstay.cli.queues",
    "limits": "mainstay.cli.limits",
    "schedules": "mainstay.cli.schedules",
    "workers": "mainstay.cli.workers",
    "store": "mainstay.cli.store",
    "outputs": "mainstay.cli.outputs",
    "check": "mainstay.cli.check",
    "tokens": "mainstay.cli.tokens",
    "machine": "mainstay.cli.machine",
}


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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mainstay {version('mainstay')}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that stand before a command."""


def program(words: Sequence[str] = ()) -> typer.Typer:
    """All commands, or none but the one that these words begin with: a program that starts, a worker or one line of a
    script, does not wait for the import of those it was not asked for."""
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
    app.callback()(_options)
    for name in words[:1] if words and words[0] in COMMANDS else COMMANDS:
        import_module(COMMANDS[name]).register(app)
    return app


__all__ = ["COMMANDS", "Group", "program"]
