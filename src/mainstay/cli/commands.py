"""How a function becomes a command: its docstring is the help, its parameters are the options.

    @command(group, "list")
    async def list_limits(store: JobStore, page: Page) -> CommandOutput:
        \"""List the limits.\"""
        limits = await overview.limits(store)
        return CommandOutput({"limits": limits}, lambda console: _show(limits, console))

A group of options is spread out. A `JobStore` or a `Control` is opened for the command: it gets the options of `Where`.
A command that returns a `CommandOutput` has the option `--json`. A command that prints by itself may return its exit
code.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

import typer
from rich.console import Console

from ..control import Control
from ..errors import MainstayError
from ..stores import JobStore
from .common import JsonOption, open_control, opened, print_json, screen
from .exits import DONE, FAILED
from .options import OptionGroup, declared
from .target import Where

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
_CTX = "ctx"
_JSON = "as_json"
F = TypeVar("F", bound=Callable[..., Any])

Opener = Callable[[Where], AbstractAsyncContextManager[Any]]
#: what can be opened for a command: type of the parameter -> opener. An opener imports the app before the loop runs
OPENERS: dict[type, Opener] = {
    JobStore: lambda where: opened(where.target().url),
    Control: lambda where: open_control(where.target()),
}


class CommandOutput:
    """The result of a command: `data` is for `--json`, `view` for people: a text, or a function that prints it."""

    def __init__(self, data: Any, view: str | Callable[[Console], object], *, exit_code: int = DONE) -> None:
        self._data = data
        self._view = view
        self._exit_code = exit_code

    def print(self, *, as_json: bool) -> None:
        """Print the result, and exit with its code."""
        if as_json:
            print_json(self._data)
        elif isinstance(self._view, str):
            typer.echo(self._view)
        else:
            self._view(screen())
        if self._exit_code != DONE:
            raise typer.Exit(self._exit_code)


def command_group(help: str) -> typer.Typer:  # noqa: A002 - as typer calls it
    """A command that has commands below it."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode="rich")


def command(group: typer.Typer, name: str) -> Callable[[F], F]:
    """Add a function to a group of commands. With `--json`, its errors are JSON."""

    def add(function: F) -> F:
        group.command(name=name, help=reflowed(inspect.getdoc(function) or ""))(_spread(function))
        return function

    return add


def error_as_json(error: MainstayError) -> typer.Exit:
    """Print an error as JSON, and return the exit of the command, to be raised."""
    print_json({"error": error_data(error)})
    return typer.Exit(FAILED)


def error_data(error: MainstayError) -> dict[str, str]:
    """An error for programs."""
    return {"code": error.code, "message": str(error)}


def reflowed(text: str) -> str:
    """Help whose paragraphs are one line each, for the terminal to fold. Indented text stays as it is.

    >>> reflowed("One sentence\\ngoes on.\\n\\n  an example\\n  another")
    'One sentence goes on.\\n\\n  an example\\n  another'
    """
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else " ".join(part.split("\n")) for part in paragraphs)


def _spread(function: Callable[..., Any]) -> Callable[..., None]:
    """The function with the options of its groups as parameters, after its own."""
    signature = inspect.signature(function, eval_str=True)
    groups: dict[str, type[OptionGroup]] = {}
    openers: dict[str, Opener] = {}
    own: dict[str, inspect.Parameter] = {}
    annotations = [parameter.annotation for parameter in signature.parameters.values()]
    where = next((each for each in annotations if isinstance(each, type) and issubclass(each, Where)), Where)
    for name, parameter in signature.parameters.items():
        annotation = parameter.annotation
        if annotation in OPENERS:
            openers[name], groups[name] = OPENERS[annotation], where
        elif isinstance(annotation, type) and issubclass(annotation, OptionGroup):
            groups[name] = annotation
        else:
            own[name] = parameter
    parameters = {_CTX: inspect.Parameter(_CTX, _KIND, annotation=typer.Context), **own}
    if signature.return_annotation is CommandOutput:
        parameters.setdefault(_JSON, inspect.Parameter(_JSON, _KIND, default=False, annotation=JsonOption))
    # a parameter without a default may not come after one with
    parameters = dict(sorted(parameters.items(), key=lambda item: item[1].default is not item[1].empty))
    for group in groups.values():
        for name, (annotation, default) in declared(group).items():
            parameters[name] = inspect.Parameter(name, _KIND, default=default, annotation=annotation)

    @functools.wraps(function)
    def wrapper(**values: Any) -> None:
        arguments = {name: values[name] for name in own}
        for name, group in groups.items():
            group_values = {option: values[option] for option in declared(group)}
            arguments[name] = group.from_values(values[_CTX], group_values)
        as_json = bool(values.get(_JSON))
        try:
            _finish(_call(function, arguments, openers), as_json=as_json)
        except MainstayError as error:
            if not as_json:
                raise
            raise error_as_json(error) from None

    # `inspect`, and through it typer, reads this attribute; the type of a function does not declare it
    wrapper.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    wrapper.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return wrapper


def _call(function: Callable[..., Any], arguments: dict[str, Any], openers: dict[str, Opener]) -> Any:
    if not inspect.iscoroutinefunction(function):
        return function(**arguments)
    resources = {name: opener(arguments[name]) for name, opener in openers.items()}

    async def run() -> Any:
        async with AsyncExitStack() as stack:
            for name, resource in resources.items():
                arguments[name] = await stack.enter_async_context(resource)
            return await function(**arguments)

    return asyncio.run(run())


def _finish(result: Any, *, as_json: bool) -> None:
    """Print the output of a command, or exit with the code that it returned."""
    if isinstance(result, CommandOutput):
        result.print(as_json=as_json)
    elif result:
        raise typer.Exit(result)
