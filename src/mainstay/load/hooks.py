"""The decorators for methods of a workflow, and the types that their annotations use."""

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
#: the attribute that holds the mark of a function
MARK = "__mainstay_load__"


class MethodMark(msgspec.Struct, frozen=True, kw_only=True):
    """What a decorator recorded about a method."""

    role: Role
    names: tuple[str, ...] = ()
    """step: the steps before it; state: the other workflows"""
    tags: dict[str, str] = {}


class Counter:
    """`Metric[Counter]`: a sum."""


class Gauge:
    """`Metric[Gauge]`: a current value; the last one counts."""


class Rate:
    """`Metric[Rate]`: the share of true values."""


class Trend:
    """`Metric[Trend]`: a distribution, with percentiles."""


MetricKind = TypeVar("MetricKind", Counter, Gauge, Rate, Trend)


class Metric(Generic[MetricKind]):
    """A value of a custom metric: a step annotated `-> Metric[Trend]` records its return value.

    >>> Metric(3.5, tags={"shop": "north"}).value
    3.5
    """

    __slots__ = ("tags", "value")

    def __init__(self, value: float | bool, *, tags: Mapping[str, str] | None = None) -> None:
        self.value = value
        self.tags = dict(tags or {})


class Check:
    """A condition that should hold: a step annotated `-> Check` (or `list[Check]`, or `Exception | None`) is a check.
    Checks are counted; a failed one does not stop the user.

    >>> bool(Check(2 > 1, "two is more than one"))
    True
    """

    __slots__ = ("holds", "says")

    def __init__(self, holds: object, says: str = "") -> None:
        self.holds = bool(holds)
        self.says = says
        """the condition in words"""

    def __bool__(self) -> bool:
        return self.holds


class Provide(Generic[T]):
    """`-> Provide[T]`: the return value goes to the named workflows."""


class Use(Generic[T]):
    """`-> Use[T]`: the arguments are the values that the named workflows provide."""


def step(*after: str, tags: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """One step of a virtual user. `after` names the steps before it; reports and thresholds can select by `tags`.

    The return annotation sets its kind: a response or another `Result` is measured, a `Metric[...]` is recorded, a
    `Check` is counted, and any other step just runs.
    """
    for name in after:
        if not isinstance(name, str):
            raise InvalidInput("step", f"{name!r} is not a name; write the names of steps: @step('login')")
    return _marking(MethodMark(role="step", names=after, tags=dict(tags or {})))


def setup(function: F) -> F:
    """Run once, before the load. Its return value (plain data) is in `self.context` under the method's name."""
    return _marking(MethodMark(role="setup"))(function)


def teardown(function: F) -> F:
    """Run once, after the load, even if it was stopped."""
    return _marking(MethodMark(role="teardown"))(function)


def on_start(function: F) -> F:
    """Run by each virtual user before its first iteration."""
    return _marking(MethodMark(role="on_start"))(function)


def on_stop(function: F) -> F:
    """Run by each virtual user after its last iteration."""
    return _marking(MethodMark(role="on_stop"))(function)


def state(*workflows: str) -> Callable[[F], F]:
    """Pass data between workflows: `-> Provide[T]` gives it to the named ones when this one is done, `-> Use[T]` takes
    it from them. Both sides must name each other."""
    return _marking(MethodMark(role="state", names=workflows))


def depends(*workflows: str) -> Callable[[C], C]:
    """This workflow starts when these are done."""
    if not workflows or not all(isinstance(name, str) for name in workflows):
        raise InvalidInput("depends", "write the names of workflows: @depends('Login')")

    def mark(workflow: C) -> C:
        workflow.__depends__ = workflows  # type: ignore[attr-defined] # it is what `Workflow` declares
        return workflow

    return mark


def _marking(mark: MethodMark) -> Callable[[F], F]:
    name = mark.role
    plain = name == "state"

    def apply(function: F) -> F:
        if not inspect.isfunction(function):
            raise InvalidInput(name, f"belongs above a method: @{name}() above `async def`, not {function!r}")
        if not plain and not inspect.iscoroutinefunction(function):
            raise InvalidInput(function.__qualname__, f"is a plain function; a @{name} is an `async def`")
        if plain and inspect.iscoroutinefunction(function):
            raise InvalidInput(function.__qualname__, f"is an `async def`; a @{name} is a plain function")
        if hasattr(function, MARK):
            raise InvalidInput(function.__qualname__, f"has two decorators, @{name} and @{mark_of(function).role}")
        # a second definition with the same name would silently replace the first
        if hasattr(sys._getframe(1).f_locals.get(function.__name__), MARK):  # noqa: SLF001 - the body of the class
            raise InvalidInput(function.__qualname__, "is defined twice; rename one of them")
        setattr(function, MARK, mark)
        return function

    return apply


def mark_of(function: object) -> MethodMark:
    """The mark of a method; raises AttributeError if it has none."""
    mark: MethodMark = getattr(function, MARK)
    return mark
