"""Hooks around runs and around the life of a worker: context managers, async or not."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import Any

from ..errors import InvalidInput
from ..worker import Context, Hook

#: an async generator function, a generator function, or what `contextlib` makes of one
Manager = Callable[
    ..., AbstractAsyncContextManager[Any] | AbstractContextManager[Any] | AsyncIterator[Any] | Iterator[Any]
]

_ADVICE = "write an async def that yields once, or a def that does"

Opener = Callable[..., AbstractAsyncContextManager[Any] | AbstractContextManager[Any]]


def opener(function: Manager, *, field: str) -> Opener:
    """A function that returns a context manager, from one that yields once."""
    if inspect.isasyncgenfunction(function):
        return contextlib.asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextlib.contextmanager(function)
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise InvalidInput(field, f"{function!r} is not a context manager; {_ADVICE}")
    # assumed to return context managers; checked when they are entered
    return function  # type: ignore[return-value]


async def entered(stack: AsyncExitStack, manager: object, *, field: str) -> Any:
    """Enter either kind."""
    if isinstance(manager, AbstractAsyncContextManager):
        return await stack.enter_async_context(manager)
    if isinstance(manager, AbstractContextManager):
        return stack.enter_context(manager)
    raise InvalidInput(field, f"{manager!r} is not a context manager; {_ADVICE}")


def around(openers: Sequence[Opener], context: Context) -> list[Hook]:
    """The context managers around one run: the first one registered is the outermost."""
    managers = [each(context) for each in openers]
    for manager in managers:
        if not isinstance(manager, AbstractAsyncContextManager | AbstractContextManager):
            raise InvalidInput("around_run", f"{manager!r} is not a context manager; {_ADVICE}")
    return managers
