"""Parameter sets and seeds, as users write them and as they are stored."""

from __future__ import annotations

import itertools
import numbers
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..errors import InvalidInput


def grid(**values: Iterable[Any]) -> list[dict[str, Any]]:
    """Every combination of the values, each as one parameter set.

    >>> grid(beta=[0.2, 0.3], gamma=[0.1])
    [{'beta': 0.2, 'gamma': 0.1}, {'beta': 0.3, 'gamma': 0.1}]
    """
    lists: dict[str, list[Any]] = {}
    for name, some in values.items():
        if isinstance(some, str | bytes | Mapping) or not isinstance(some, Iterable):
            raise InvalidInput(f"params.{name}", f"{some!r} is one value; give a list of values, like [{some!r}]")
        lists[name] = list(some)
        if not lists[name]:
            raise InvalidInput(f"params.{name}", "has no value; give at least one")
    return [dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values())]


def sets_of(params: Any) -> list[dict[str, Any]]:
    """Parameter sets as plain data, from mappings or objects with fields. None: one empty set."""
    if params is None:
        return [{}]
    if isinstance(params, Mapping | str) or not isinstance(params, Iterable):
        raise InvalidInput("params", f"{params!r} is not a list of parameter sets; write [{{...}}], or use grid()")
    sets = []
    for index, one in enumerate(params):
        try:
            # a set is stored as a sorted list: its order differs between processes
            data = msgspec.to_builtins(one, str_keys=True, enc_hook=_number, order="deterministic")
        except TypeError as error:
            raise InvalidInput(f"params[{index}]", f"cannot be stored as data: {error}") from None
        if not isinstance(data, dict):
            raise InvalidInput(f"params[{index}]", f"{one!r} is not a mapping of names to values")
        sets.append(data)
    if not sets:
        raise InvalidInput("params", "is empty; a batch needs at least one parameter set")
    return sets


def seeds_of(seeds: Any) -> list[int | None]:
    """The seeds of each set. A number n means 0 to n - 1; None: each set runs once, without a seed."""
    if seeds is None:
        return [None]
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        seeds = range(seeds)
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise InvalidInput("seeds", f"{seeds!r} is neither a number nor a list of numbers")
    try:
        numbers_given: list[int | None] = [operator.index(seed) for seed in seeds]
    except TypeError as error:
        raise InvalidInput("seeds", f"contains a value that is not a whole number: {error}") from None
    if not numbers_given:
        raise InvalidInput("seeds", "is empty; give at least one seed, or leave it out")
    if len(set(numbers_given)) < len(numbers_given):
        raise InvalidInput("seeds", "contains a duplicate; each seed of a set has its own outputs")
    return numbers_given


def _number(value: Any) -> Any:
    """A number of another type, such as NumPy's, as a Python number."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"a {type(value).__name__} is neither a number nor a text, nor a list or mapping of them")
