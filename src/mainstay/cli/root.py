"""The command group: every command, its errors as messages, its version.

A command lives in a module that has a function `register(app)`. `COMMANDS` names those that concern every job; each
kind of job brings its own (`mainstay.kinds`). A module is imported when its command is called, not for the help.
Commands raise `MainstayError`s as they come: the group shows them as one red line on stderr and exits with 2.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import MainstayError
from ..kinds import Command, kinds
from .exits import EXIT_CODES, FAILED

COMMANDS = (
    Command(name="worker", module="mainstay.cli.worker", help="Run the jobs of an app until Ctrl-C or SIGTERM."),
    Command(
        name="serve",
        module="mainstay.cli.serve",
        help="Serve the HTTP API and the dashboard of one or more stores, until Ctrl-C or SIGTERM.",
    ),
    Command(name="jobs", module="mainstay.cli.jobs", help="Find, inspect and change jobs."),
    Command(
        name="stats",
        module="mainstay.cli.stats",
        help="Show jobs by state, the wait of the oldest job, rates, and the workers.",
    ),
    Command(name="queues", module="mainstay.cli.queues", help="List, pause, resume and purge queues."),
    Command(name="limits", module="mainstay.cli.limits", help="List, set and clear limits of concurrency keys."),
    Command(
        name="schedules",
        module="mainstay.cli.schedules",
        help="List, run, pause, resume and drop schedules.",
    ),
    Command(name="workers", module="mainstay.cli.workers", help="List workers, and drain them."),
    Command(name="store", module="mainstay.cli.store", help="Set up, migrate and inspect a store."),
    Command(name="outputs", module="mainstay.cli.outputs", help="List outputs, and verify them."),
    Command(
        name="check",
        module="mainstay.cli.check",
        help="Check every job: its state, claim, numbers and payload, and the hash chain of its history.",
    ),
    Command(name="tokens", module="mainstay.cli.tokens", help="Manage tokens for the HTTP API and the dashboard."),
    Command(
        name="machine",
        module="mainstay.cli.machine",
        help="Print the lifecycle: every state, its flags, and the states it may change to.",
    ),
)
#: the commands of the kinds stand after these two in the help
_FIRST = 2


def commands() -> dict[str, Command]:
    """Every command by name: ours, and those of the installed kinds, which cannot replace ours."""
    of_kinds = [command for kind in kinds() for command in kind.commands]
    ours = {command.name for command in COMMANDS}
    added = [command for command in of_kinds if command.name not in ours]
    return {command.name: command for command in (*COMMANDS[:_FIRST], *added, *COMMANDS[_FIRST:])}


class Group(TyperGroup):
    """Shows our own errors as messages. Anything else is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except MainstayError as error:
            from rich.console import Console  # noqa: PLC0415 - most commands print no error

            first, *story = str(error).splitlines() or [error.code]
            console = Console(stderr=True, highlight=False, soft_wrap=True)
            console.print(f"error: {first}", style="bold red", markup=False)
            for line in story:
                console.print(line, style="dim", markup=False)
            raise typer.Exit(FAILED) from None


class Program(Group):
    """The group of all commands. It imports a command when that is called; the help shows the declared lines."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._shows_help = False

    @cached_property
    def _known(self) -> dict[str, Command]:
        return commands()

    def list_commands(self, _: Any) -> list[str]:
        """In the order of the help."""
        return list(self._known)

    def get_command(self, _: Any, name: str) -> Any:
        """The command of that name, imported now; None if there is none."""
        known = {command.name: command for command in COMMANDS}.get(name) or self._known.get(name)
        if known is None:
            # typer looks here for names like the unknown one
            self.commands.update({each.name: _line(each) for each in self._known.values()})
            return None
        if self._shows_help:
            return _line(known)
        return _imported(known)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._shows_help = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._shows_help = False


def _line(command: Command) -> TyperCommand:
    """The command as the help shows it."""
    return TyperCommand(command.name, help=command.help)


@cache
def _imported(command: Command) -> Any:
    """Made once in a process: the groups of commands are objects of their modules."""
    app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    import_module(command.module).register(app)
    # a callback makes a group of it, so that the command keeps its name also if it is the only one
    app.callback()(_options)
    found: Any = typer.main.get_group(app).commands[command.name]
    return found


_EPILOG = "[bold]Exit codes[/bold]\n\n" + "\n".join(f"  {code:<3} {meaning}" for code, meaning in EXIT_CODES.items())


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - other commands start without it

        typer.echo(f"mainstay {version('mainstay')}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before a command."""


def program() -> typer.Typer:
    """All commands. A program that starts, a worker or one line of a script, does not wait for the import of those it
    was not asked for."""
    app = typer.Typer(
        name="mainstay",
        cls=Program,
        help="Find, change and check jobs; run workers, studies and load tests.",
        epilog=_EPILOG,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    return app


__all__ = ["COMMANDS", "Group", "Program", "commands", "program"]
