"""A user's function, and which of the things it may ask for it takes."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import BadArguments, InvalidInput
from ..task.storable import checked_type
from ..task.task_name import check_function, is_async
from .unknown_fields import field_check


class Function:
    """What `params`, `seed`, `out` and the like are passed to, by their names."""

    def __init__(self, function: Callable[..., Any], name: str, *, offered: tuple[str, ...]) -> None:
        check_function(function, name)
        self.function = function
        self.name = name
        self.is_async = is_async(function)
        hints = _hints(function, name)
        takes = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise InvalidInput(name, f"{parameter} cannot be filled; name what it takes: {', '.join(offered)}")
            if parameter.name in offered:
                takes.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise InvalidInput(
                    f"{name}.{parameter.name}", f"is not something it can be given; it may take {', '.join(offered)}"
                )
        self.takes = tuple(takes)
        self._params = checked_type(hints.get("params", Any), field=f"{name}.params")
        self.fields: Mapping[str, Any] | None = _fields(self._params)
        """the type of each parameter, if they are declared"""
        self._check = None if self._params in (Any, dict) else field_check(self._params)

    def params(self, data: dict[str, Any]) -> Any:
        """A set of parameters as the function declares it; raises `BadArguments` naming the field."""
        if self._params in (Any, dict):
            return dict(data)
        try:
            return msgspec.convert(data, self._params, strict=False)
        except msgspec.ValidationError as error:
            raise BadArguments(f"{self.name}.params", str(error)) from None

    def given(self, data: dict[str, Any]) -> Any:
        """The same for what is being submitted: a name that is not declared is refused, for it would change nothing.
        What was stored once is still run."""
        if self._check is not None and (unknown := self._check(data)) is not None:
            raise InvalidInput(f"{self.name}.params{unknown.path}", unknown.told)
        return self.params(data)

    def stored(self, data: dict[str, Any]) -> dict[str, Any]:
        """The same as data, however it was written: with the defaults of what is declared, and its kinds of numbers. So
        the same parameters have the same address, from a program and from a command line."""
        # a set has another order in every process; its address must not
        made = msgspec.to_builtins(self.given(data), str_keys=True, order="deterministic")
        return made if isinstance(made, dict) else dict(data)

    def __call__(self, offered: dict[str, Any]) -> Any:
        return self.function(**{name: offered[name] for name in self.takes})


def _fields(declared: Any) -> dict[str, Any] | None:
    if not isinstance(declared, type):
        return None
    if issubclass(declared, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(declared)}
    if dataclasses.is_dataclass(declared) or typing.is_typeddict(declared):
        try:
            return typing.get_type_hints(declared)
        except NameError:  # names of a function's own scope: values are read by the rule for undeclared ones
            return None
    return None


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise InvalidInput(name, f"the name {error.name!r} in its annotations is not known; import it") from None
