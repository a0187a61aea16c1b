"""Options that come together: declared once, used by many commands.

A command that has a parameter annotated with a bundle gets the bundle's options, and finds their values in it:

    @group.command()
    @bundled
    def list_jobs(where: Where, filters: Filters, limit: int = 50) -> None: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, Self

import msgspec
import typer

from ..errors import MainstayError
from .common import print_json
from .exits import FAILED

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
_CTX = "ctx"


class Bundle(Protocol):
    """Options as one value."""

    OPTIONS: ClassVar[Mapping[str, Any]]
    """field -> annotation of its option; the default is the field's"""

    @classmethod
    def given(cls, ctx: typer.Context, values: Mapping[str, Any]) -> Self:
        """From what was given on the command line."""
        ...


def told_as_json(error: MainstayError) -> typer.Exit:
    """Print an error for programs: whoever asked for JSON gets it in any case. To be raised: the end of the command."""
    print_json({"error": {"code": error.code, "message": str(error)}})
    return typer.Exit(FAILED)


def bundled(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose bundles are spread out into their options, after its own. With --json, its errors are JSON."""
    signature = inspect.signature(command, eval_str=True)
    bundles: dict[str, type[Bundle]] = {}
    own: list[inspect.Parameter] = [inspect.Parameter(_CTX, _KIND, annotation=typer.Context)]
    spread: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if not hasattr(parameter.annotation, "OPTIONS"):
            own.append(parameter)
            continue
        bundles[parameter.name] = parameter.annotation
        defaults = {field.name: field.default for field in msgspec.structs.fields(parameter.annotation)}
        for name, annotation in parameter.annotation.OPTIONS.items():
            spread.append(inspect.Parameter(name, _KIND, default=defaults[name], annotation=annotation))

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        ctx = values.pop(_CTX)
        for name, bundle in bundles.items():
            values[name] = bundle.given(ctx, {option: values.pop(option) for option in bundle.OPTIONS})
        try:
            command(**values)
        except MainstayError as error:
            if not values.get("as_json"):
                raise
            raise told_as_json(error) from None

    # a parameter without a default may not come after one with
    own.sort(key=lambda parameter: parameter.default is not parameter.empty)
    # what `inspect` reads, and through it typer; the type of a function does not declare it
    wrapper.__signature__ = signature.replace(parameters=[*own, *spread])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *spread)}
    return wrapper
