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

from ..worker import logs


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


def local_actor() -> str:
    """The user of this terminal for the audit trail, as user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the container has no such user
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
