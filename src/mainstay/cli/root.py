"""The `mainstay` program: every command, errors as messages, and the version.

A command lives in a module that has a function `register(app)`. `COMMANDS` lists the commands that concern every job;
each kind of job brings its own (`mainstay.kinds`). A module is imported when its command is called, not for the help.
Commands let a `MainstayError` pass: the group shows it as one red line on stderr and exits with 2.
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

#: name -> line in the help, in its order. The module of a command has its name
_OWN = {
    "worker": "Run the jobs of an app until Ctrl-C or SIGTERM.",
    "serve": "Serve the HTTP API and the dashboard of one or more stores, until Ctrl-C or SIGTERM.",
    "jobs": "Find, inspect and change jobs.",
    "stats": "Show jobs by state, the wait of the oldest job, rates, and the workers.",
    "queues": "List, pause, resume and purge queues.",
    "limits": "List, set and clear limits of concurrency keys.",
    "schedules": "List, run, pause, resume and drop schedules.",
    "workers": "List workers, and drain them.",
    "store": "Set up, migrate and inspect a store.",
    "outputs": "List outputs, and verify them.",
    "check": "Check every job: its state, claim, numbers and payload, and the hash chain of its history.",
    "tokens": "Manage tokens for the HTTP API and the dashboard.",
    "machine": "Print the lifecycle: every state, its flags, and the states it may change to.",
}
COMMANDS = (
    *(Command(name=name, module=f"mainstay.cli.{name}", help=line) for name, line in _OWN.items()),
    # by name: the cluster is a layer above
    Command(
        name="cluster",
        module="mainstay.cluster.cli.commands",
        help="Start, see and operate a cluster of managers and nodes.",
    ),
    Command(
        name="manager",
        module="mainstay.cluster.cli.manager",
        help="Run a manager of a cluster until Ctrl-C or SIGTERM.",
    ),
)
_NAMES = frozenset(command.name for command in COMMANDS)
#: the help lists the commands of kinds after these
_FIRST = 2


def commands() -> dict[str, Command]:
    """Every command by name: ours, and those of the installed kinds, which cannot replace ours."""
    added = [command for kind in kinds() for command in kind.commands if command.name not in _NAMES]
    return {command.name: command for command in (*COMMANDS[:_FIRST], *added, *COMMANDS[_FIRST:])}


class CommandGroup(TyperGroup):
    """Shows our errors as messages. Any other exception is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
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


class LazyCommandGroup(CommandGroup):
    """The group of all commands. It imports a command when it is called; the help shows the declared lines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._shows_help = False

    @cached_property
    def _known(self) -> dict[str, Command]:
        return commands()

    def list_commands(self, _: Any) -> list[str]:
        """Names of the commands, in the order of the help."""
        return list(self._known)

    def get_command(self, _: Any, name: str) -> Any:
        """The command of that name, which is imported now; None if there is no such command."""
        known = {command.name: command for command in COMMANDS}.get(name) or self._known.get(name)
        if known is None:
            # typer suggests similar names from these
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
    """The command of a module. It is registered once in a process, since its group is an object of the module."""
    app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    import_module(command.module).register(app)
    # a callback makes it a group, in which a single command keeps its name
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
    """Options before the command."""


#: all commands; a command does not wait for the import of the others
app = typer.Typer(
    name="mainstay",
    cls=LazyCommandGroup,
    help="Find, change and check jobs; run workers, studies and load tests.",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(_options)
