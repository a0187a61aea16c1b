"""What tasks add to an app: `@app.task`, and the tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from ..worker import AppBase
from .declarations import Tasks
from .options import TaskOptions
from .task import AsyncTask, PlainTask, Task

P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """The decorator `@app.task(...)`: makes a task from an `async def` or a plain function."""

    # a plain function may also return a coroutine, so the two overlap; the first that fits applies
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class TaskMethods(AppBase):
    """The methods of an app that concern tasks."""

    @property
    def _tasks(self) -> Tasks:
        tasks: Tasks = self.part("task")
        return tasks

    # overlaps as in `Decorator`
    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Decorator: ...
    def task(self, function: Any = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(retries=5, timeout="30s", queue="mail")`.

        An `async def` runs on the worker's loop, a plain function in a thread, and either in its own process with
        `process=True`. Its name is `module.function` unless `name` is given. `retry_on` and `give_up_on` name the
        exceptions that are, or are not, worth another attempt; `policy` is a function that decides instead. The other
        options are those of a submit.
        """
        if function is None:
            return lambda function: self._tasks.declare(function, options)
        return self._tasks.declare(function, options)

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The tasks by name."""
        return MappingProxyType(self._tasks.tasks)


__all__ = ["Decorator", "TaskMethods"]
