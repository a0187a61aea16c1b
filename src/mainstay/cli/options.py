"""Groups of options that commands share, single options that they share, and panels of the help.

A group of options is a class whose fields carry their options:

    class Page(OptionGroup, frozen=True, kw_only=True):
        limit: Annotated[int, typer.Option("--limit", help="...")] = 50

A command with a parameter `page: Page` gets these options and finds their values in it.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Self, get_type_hints

import msgspec
import typer

from ..clock import seconds
from ..errors import InvalidInput
from ..worker import WorkerOptions, logs


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Options that belong together, as one value."""

    @classmethod
    def from_values(cls, _: typer.Context, values: Mapping[str, Any]) -> Self:
        """Build it from the values on the command line."""
        return cls(**values)


@cache
def declared(group: type[OptionGroup]) -> dict[str, tuple[Any, Any]]:
    """The options of a group: annotation and default by field. Fields without an option are left out."""
    hints = get_type_hints(group, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(group)}
    return {name: (hint, defaults[name]) for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def panel(title: str) -> Callable[..., Any]:
    """Declares options that the help lists under a title of their own; takes the arguments of `typer.Option`."""
    return partial(typer.Option, rich_help_panel=title)


ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Name of the actor in the audit trail. Default: your user and host.")
]
ForOption = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Wait at most this time.")]

_output = panel("Output")


class LogOptions(OptionGroup, frozen=True, kw_only=True):
    """What a program that runs until it is stopped writes to its log."""

    log_level: Annotated[
        str, _output("--log-level", metavar="|".join(logs.LEVELS), help="Lowest level that is logged.")
    ] = "info"
    json_logs: Annotated[bool, _output("--json-logs", help="Write logs as JSON, one object a line.")] = False

    def configure(self) -> None:
        """Set up the logging of this process."""
        logs.configure(self.log_level, as_json=self.json_logs)


def concurrency_option(what: str) -> Any:
    """Declares `--concurrency` for a program whose processes run `what`."""
    return typer.Option(
        "--concurrency",
        "-c",
        min=1,
        help=f"{what} that each process runs at a time.",
        show_default="from the settings, 10",
    )


class ProcessOptions(LogOptions, frozen=True, kw_only=True):
    """How a worker runs: its processes, and its log."""

    concurrency: Annotated[int | None, concurrency_option("Jobs")] = None
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, help="Number of engine processes.")] = 1
    grace: Annotated[
        str, typer.Option("--grace", help="Time that running jobs have to finish after the first signal.")
    ] = "30s"

    def worker_options(self, target: str, *, name: str, queues: tuple[str, ...]) -> WorkerOptions:
        """The options of the worker of that name."""
        return WorkerOptions(
            target=target,
            name=name,
            queues=queues,
            concurrency=self.concurrency,
            processes=self.processes,
            grace_s=seconds(self.grace, field="grace"),
            log_level=self.log_level,
            json_logs=self.json_logs,
        )


def key_value(word: str, *, field: str, form: str = "key=value") -> tuple[str, str]:
    """The two sides of `key=value`. `form` tells the user how to write it.

    >>> key_value("url=http://a/?b=c", field="set")
    ('url', 'http://a/?b=c')
    """
    key, equals, value = word.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(field, f"{word!r} is not of the form {form}")
    return key, value


def local_actor() -> str:
    """The user of this terminal for the audit trail, as user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the container has no such user
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
