"""How a function becomes a command: its docstring is the help, and its groups of options are spread out.

@command(group, "list")
def list_jobs(where: Where, filters: Filters, limit: int = 50) -> None:
    \"""List jobs, newest first.\"""
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer

from ..errors import MainstayError
from .common import print_json
from .exits import FAILED
from .options import Options, declared

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
_CTX = "ctx"
F = TypeVar("F", bound=Callable[..., None])


def command(group: typer.Typer, name: str) -> Callable[[F], F]:
    """Add a function to a group of commands. With `--json`, its errors are JSON."""

    def add(function: F) -> F:
        group.command(name=name, help=reflowed(inspect.getdoc(function) or ""))(_spread(function))
        return function

    return add


def error_as_json(error: MainstayError) -> typer.Exit:
    """Print an error as JSON, and return the exit of the command, to be raised."""
    print_json({"error": {"code": error.code, "message": str(error)}})
    return typer.Exit(FAILED)


def reflowed(text: str) -> str:
    """Help whose paragraphs are one line each, for the terminal to fold. Indented text stays as it is.

    >>> reflowed("One sentence\\ngoes on.\\n\\n  an example\\n  another")
    'One sentence goes on.\\n\\n  an example\\n  another'
    """
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else " ".join(part.split("\n")) for part in paragraphs)


def _spread(function: Callable[..., None]) -> Callable[..., None]:
    """The function with the options of its groups as parameters, after its own."""
    signature = inspect.signature(function, eval_str=True)
    groups: dict[str, type[Options]] = {}
    own: list[inspect.Parameter] = [inspect.Parameter(_CTX, _KIND, annotation=typer.Context)]
    spread: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if not (isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Options)):
            own.append(parameter)
            continue
        groups[parameter.name] = parameter.annotation
        for name, (annotation, default) in declared(parameter.annotation).items():
            spread.append(inspect.Parameter(name, _KIND, default=default, annotation=annotation))

    @functools.wraps(function)
    def wrapper(**values: Any) -> None:
        ctx = values.pop(_CTX)
        for name, group in groups.items():
            values[name] = group.from_values(ctx, {option: values.pop(option) for option in declared(group)})
        try:
            function(**values)
        except MainstayError as error:
            if not values.get("as_json"):
                raise
            raise error_as_json(error) from None

    # a parameter without a default may not come after one with
    own.sort(key=lambda parameter: parameter.default is not parameter.empty)
    # what `inspect` reads, and through it typer; the type of a function does not declare it
    wrapper.__signature__ = signature.replace(parameters=[*own, *spread])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *spread)}
    return wrapper
