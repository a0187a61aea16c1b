"""The kind of a step, read from its annotations."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import operator
import types
import typing
from typing import Any, Literal

import msgspec

from ..errors import InvalidInput
from .hooks import Check, Counter, Gauge, Metric, Provide, Rate, Trend, Use
from .results import Result
from .stats.model import MetricType

StepKind = Literal["measured", "metric", "check", "action"]

_METRICS: dict[Any, MetricType] = {Counter: "counter", Gauge: "gauge", Rate: "rate", Trend: "trend"}


class StepRole(msgspec.Struct, frozen=True, kw_only=True):
    """What a step returns, and what that means."""

    kind: StepKind
    metric: MetricType | None
    optional: bool
    """whether it may return nothing"""
    left_out: bool
    """annotated `-> object`: its return value is ignored on purpose"""
    several: bool
    """a measured step that returns several responses, each of them measured"""


class StepSignature(StepRole, frozen=True, kw_only=True):
    """The signature of a step."""

    parameters: dict[str, inspect.Parameter]
    """without `self`"""
    hints: dict[str, Any]
    """resolved"""


def signature_of(function: Any, *, field: str) -> StepSignature:
    """Read the signature of a step. Annotations that are strings are resolved in the module of the function."""
    hints = hints_of(function, field=field)
    parameters = dict(list(inspect.signature(function).parameters.items())[1:])
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidInput(field, f"argument {name} cannot be given by name; steps take keyword arguments only")
    hint = hints.get("return")
    if "return" in hints and not _is_type(hint):
        raise InvalidInput(
            field, f"is annotated to return {hint!r}, which is not a type; write -> HTTPResponse, for example"
        )
    hint = _plain(hint)
    kind, metric = _kind(hint, field=field)
    return StepSignature(
        kind=kind,
        metric=metric,
        # a check that returns an exception returns None when it holds
        optional=any(part is type(None) or _is(part, BaseException) for part in members_of(hint)),
        left_out=hint is object,
        several=kind == "measured" and any(_is_results(part) for part in members_of(hint)),
        parameters=parameters,
        hints=hints,
    )


def hints_of(function: Any, *, field: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise InvalidInput(
            field, f"its annotation {error.name!r} cannot be resolved; import it where the workflow is defined"
        ) from None
    except (TypeError, SyntaxError, AttributeError) as error:
        raise InvalidInput(field, f"its annotations cannot be read: {error}") from None


def _kind(hint: Any, *, field: str) -> tuple[StepKind, MetricType | None]:
    """The kind, and for a metric its type."""
    if _origin(hint) is Metric:
        return "metric", _metric_type(hint, field=field)
    parts = [part for part in members_of(hint) if part is not type(None)]
    if parts and all(_is(part, Result) or _is_results(part) for part in parts):
        return "measured", None
    if parts and all(_is(part, Check) or _is_checks(part) or _is(part, BaseException) for part in parts):
        return "check", None
    if any(_origin(part) is Metric or part is Metric for part in parts):
        inner = next(part for part in parts if _origin(part) is Metric or part is Metric)
        return "metric", _metric_type(inner, field=field)
    # the return value of such a step would be ignored silently
    for base, rule in _COUNTED.items():
        if _mentions(hint, base):
            raise InvalidInput(field, f"is annotated to return {_named(hint)}: {rule}")
    return "action", None


#: return type -> its accepted forms
_COUNTED: dict[type, str] = {
    Result: "a measured step returns a response, a list, tuple or dict of responses, or None, and nothing else",
    Check: "a check returns a Check, a list or tuple of them, or None, and nothing else",
    Metric: "a step returns one Metric; record more of them with self.count, self.gauge, self.rate_of and self.trend",
}


def _plain(hint: Any) -> Any:
    """The type behind an alias, a NewType or a type variable."""
    while True:
        if isinstance(hint, typing.TypeVar):
            inner = hint.__bound__ or (
                functools.reduce(operator.or_, hint.__constraints__) if hint.__constraints__ else None
            )
        else:
            inner = getattr(hint, "__value__", None) or getattr(hint, "__supertype__", None)
        if inner is None:
            return hint
        hint = inner


def _mentions(hint: Any, base: type) -> bool:
    """Whether a type occurs anywhere in an annotation."""
    return _is(hint, base) or any(_mentions(_plain(part), base) for part in typing.get_args(hint))


def _metric_type(hint: Any, *, field: str) -> MetricType:
    of = typing.get_args(hint)
    if len(of) != 1 or of[0] not in _METRICS:
        raise InvalidInput(
            field, f"is annotated {_named(hint)}; write Metric[Counter], Metric[Gauge], Metric[Rate] or Metric[Trend]"
        )
    return _METRICS[of[0]]


def members_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union; otherwise the annotation itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(part for one in typing.get_args(hint) for part in members_of(_plain(one)))
    return () if hint is None else (hint,)


def _origin(hint: Any) -> Any:
    return typing.get_origin(hint) or hint


def _is(hint: Any, base: type) -> bool:
    found = _origin(hint)
    return isinstance(found, type) and issubclass(found, base)


def _is_type(hint: Any) -> bool:
    """Classes are callable, and so are most types of `typing`: not unions, variables and (since 3.12) aliases."""
    return (
        callable(hint)
        or typing.get_origin(hint) is not None
        or isinstance(hint, typing.TypeVar)
        or hasattr(hint, "__value__")
    )


def _is_results(hint: Any) -> bool:
    """list[HTTPResponse], and other sequences and mappings whose items are responses."""
    found, of = typing.get_origin(hint), typing.get_args(hint)
    if found in (dict, collections.abc.Mapping):
        of = of[1:]
    elif found not in (list, tuple, collections.abc.Sequence):
        return False
    items = [part for one in of if one is not ... for part in members_of(_plain(one)) if part is not type(None)]
    return bool(items) and all(_is(part, Result) for part in items)


def _is_checks(hint: Any) -> bool:
    """list[Check], and other sequences of checks."""
    found = typing.get_origin(hint)
    return (
        isinstance(found, type)
        and issubclass(found, (list, tuple))
        and any(_is(part, Check) for part in typing.get_args(hint))
    )


def _named(hint: Any) -> str:
    """An annotation as it is written.

    >>> _named(Metric[int]), _named(list[Check] | None)
    ('Metric[int]', 'list[Check] | None')
    """
    of = typing.get_args(hint)
    if hint is type(None):
        return "None"
    if not of:
        return getattr(hint, "__name__", None) or str(hint)
    parts = [_named(part) for part in of]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " | ".join(parts)
    return f"{_named(_origin(hint))}[{', '.join(parts)}]"


def state_direction(function: Any, *, field: str) -> Literal["provide", "use"]:
    """Whether a @state method provides or uses a value."""
    hint = hints_of(function, field=field).get("return")
    found = _origin(hint)
    if found is Provide:
        return "provide"
    if found is Use:
        return "use"
    raise InvalidInput(field, "annotate the @state with -> Provide[...] or -> Use[...]")
