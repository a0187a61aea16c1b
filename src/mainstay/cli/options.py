"""How options are declared: groups of options that commands share, and panels of the help.

A group of options is a class whose fields carry their options:

    class Page(Options, frozen=True, kw_only=True):
        limit: Annotated[int, typer.Option("--limit", help="...")] = 50

A command with a parameter `page: Page` gets these options and finds their values in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Self, get_type_hints

import msgspec
import typer


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options that belong together, as one value."""

    @classmethod
    def from_values(cls, _: typer.Context, values: Mapping[str, Any]) -> Self:
        """Build it from the values on the command line."""
        return cls(**values)


@cache
def declared(group: type[Options]) -> dict[str, tuple[Any, Any]]:
    """The options of a group: annotation and default by field. Fields without an option are left out."""
    hints = get_type_hints(group, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(group)}
    return {name: (hint, defaults[name]) for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def panel(title: str) -> Callable[..., Any]:
    """Declares options that the help lists under a title of their own; takes what `typer.Option` takes."""
    return partial(typer.Option, rich_help_panel=title)
