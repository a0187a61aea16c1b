"""The marks that users put on the methods of a workflow, and the types that say what a method is for."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from ..errors import InvalidInput

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

Role = Literal["step", "setup", "teardown", "on_start", "on_stop", "state"]
#: where a mark is kept on a function or class
MARK = "__mainstay_load__"


class MethodMark(msgspec.Struct, frozen=True, kw_only=True):
    """What a decorator has said about a method."""

    role: Role
    names: tuple[str, ...] = ()
    """step: what it comes after; state: the other workflows"""
    tags: dict[str, str] = {}


class Counter:
    """`Metric[Counter]`: how often, or how much in all."""


class Gauge:
    """`Metric[Gauge]`: how much at the moment; the last value counts."""


class Rate:
    """`Metric[Rate]`: which part of the values is true."""


class Trend:
    """`Metric[Trend]`: a distribution, with percentiles."""


MetricKind = TypeVar("MetricKind", Counter, Gauge, Rate, Trend)


class Metric(Generic[MetricKind]):
    """A value of a metric of your own: a step that is annotated `-> Metric[Trend]` records what it returns.

    >>> Metric(3.5, tags={"shop": "north"}).value
    3.5
    """

    __slots__ = ("tags", "value")

    def __init__(self, value: float | bool, *, tags: Mapping[str, str] | None = None) -> None:
        self.value = value
        self.tags = dict(tags or {})


class Check:
    """Something that should hold: a step that is annotated `-> Check` (or `list[Check]`, or `Exception | None`) is a
    check. It is counted, and stops nothing.

    >>> bool(Check(2 > 1, "two is more than one"))
    True
    """

    __slots__ = ("holds", "says")

    def __init__(self, holds: object, says: str = "") -> None:
        self.holds = bool(holds)
        self.says = says
        """what should hold"""

    def __bool__(self) -> bool:
        return self.holds


class Provide(Generic[T]):
    """`-> Provide[T]`: what this method returns goes to the workflows that it names."""


class Use(Generic[T]):
    """`-> Use[T]`: this method is given what the workflows that it names provide, by the names of its arguments."""


def step(*after: str, tags: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """A part of what a virtual user does, again and again. `after` names the steps that come before it; `tags` are what
    reports and thresholds can be cut by.

    What it is follows from what it is annotated to return: a response or another `Result` is measured, a
    `Metric[...]` is recorded, a `Check` is counted, and everything else is just done.
    """
    for name in after:
        if not isinstance(name, str):
            raise InvalidInput("step", f"{name!r} is not a name; write the names of steps: @step('login')")
    return _marking(MethodMark(role="step", names=after, tags=dict(tags or {})), "step")


def setup(function: F) -> F:
    """Done once, before the load. What it returns (plain data) is in `self.context` under the method's name."""
    return _marking(MethodMark(role="setup"), "setup")(function)


def teardown(function: F) -> F:
    """Done once, after the load, also when it was stopped."""
    return _marking(MethodMark(role="teardown"), "teardown")(function)


def on_start(function: F) -> F:
    """Done by each virtual user before its first iteration."""
    return _marking(MethodMark(role="on_start"), "on_start")(function)


def on_stop(function: F) -> F:
    """Done by each virtual user after its last iteration."""
    return _marking(MethodMark(role="on_stop"), "on_stop")(function)


def state(*workflows: str) -> Callable[[F], F]:
    """Data between workflows. With `-> Provide[T]`: for these workflows, once this one is done. With `-> Use[T]`: from
    these. Both sides must name each other."""
    return _marking(MethodMark(role="state", names=workflows), "state", plain=True)


def depends(*workflows: str) -> Callable[[C], C]:
    """This workflow starts when these are done."""
    if not workflows or not all(isinstance(name, str) for name in workflows):
        raise InvalidInput("depends", "write the names of workflows: @depends('Login')")

    def mark(workflow: C) -> C:
        workflow.__depends__ = workflows  # type: ignore[attr-defined] # it is what `Workflow` declares
        return workflow

    return mark


def _marking(mark: MethodMark, name: str, *, plain: bool = False) -> Callable[[F], F]:
    def apply(function: F) -> F:
        if not inspect.isfunction(function):
            raise InvalidInput(name, f"belongs above a method: @{name}() above `async def`, not {function!r}")
        if not plain and not inspect.iscoroutinefunction(function):
            raise InvalidInput(function.__qualname__, f"is a plain function; a @{name} is an `async def`")
        if plain and inspect.iscoroutinefunction(function):
            raise InvalidInput(function.__qualname__, f"is an `async def`; a @{name} is a plain function")
        if hasattr(function, MARK):
            raise InvalidInput(function.__qualname__, f"is marked twice, with @{name} and @{mark_of(function).role}")
        # in the body of a class, what is defined later takes the place of what has the same name: nobody would notice
        if hasattr(sys._getframe(1).f_locals.get(function.__name__), MARK):  # noqa: SLF001 - where it is defined
            raise InvalidInput(function.__qualname__, "is there twice; give one of them another name")
        setattr(function, MARK, mark)
        return function

    return apply


def mark_of(function: object) -> MethodMark:
    """What was said about a method; raises AttributeError for one that has no mark."""
    found: MethodMark = getattr(function, MARK)
    return found
