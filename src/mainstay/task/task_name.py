"""The name of a task: stored with every job; a worker finds the function by it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from ..control import check_name
from ..errors import InvalidInput


def name_of(
    function: Callable[..., Any], given: str | None, *, kind: Literal["task", "batch", "node_job"] = "task"
) -> str:
    """The given name, or `module.function` if workers can find the function by it.

    >>> name_of(lambda: None, None)
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: task: a lambda has no name of its own; give it one: @app.task(name="...")
    """
    if given is not None:
        return check_name(given)
    module = getattr(function, "__module__", None)
    inner = getattr(function, "__qualname__", None)
    if not module or not inner:
        raise InvalidInput(kind, f'{function!r} has no name of its own; give it one: @app.{kind}(name="...")')
    if "<lambda>" in inner:
        raise InvalidInput(kind, f'a lambda has no name of its own; give it one: @app.{kind}(name="...")')
    if module == "__main__":
        raise InvalidInput(
            kind,
            f"{inner} is defined in the started program, whose module is __main__ here but has another name in a "
            "worker that imports it, so the worker would not find its jobs; move it to a module, or name it: "
            f'@app.{kind}(name="{inner}")',
        )
    if "<locals>" in inner:
        raise InvalidInput(
            kind,
            f"{module}.{inner} is defined inside a function, so a worker that imports {module} may not have it; define "
            f'it at the top of the module, or, if the import calls that function, name it: @app.{kind}(name="...")',
        )
    return check_name(f"{module}.{inner}")


def check_function(function: Callable[..., Any], name: str) -> None:
    """Refuse callables that cannot be tasks."""
    if not callable(function):
        raise InvalidInput("task", f"{function!r} is not a function; write @app.task or @app.task(...) above one")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(name, "it yields, but a task returns once; return a list, or submit a job for each part")
    if inspect.isclass(function):
        raise InvalidInput(name, "it is a class; write a function that calls it")
    if isinstance(function, staticmethod | classmethod) or _is_method(function):
        raise InvalidInput(name, "it is a method, but a worker has no object to call it on; write a function")


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether it is defined in the body of a class and not bound to an object."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not owner or owner.endswith("<locals>") or inspect.ismethod(function):
        return False
    return next(iter(inspect.signature(function).parameters), None) in ("self", "cls")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is defined, for messages."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)
