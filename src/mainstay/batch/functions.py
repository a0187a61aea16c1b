"""A user's function, and which of the offered arguments it takes."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import BadArguments, InvalidInput
from ..task import check_function, checked_type, is_async
from .unknown_fields import field_check


class Function:
    """A function that takes some of `params`, `seed`, `out` and the like by name."""

    def __init__(self, function: Callable[..., Any], name: str, *, offered: tuple[str, ...]) -> None:
        check_function(function, name)
        self.function = function
        self.name = name
        self.is_async = is_async(function)
        hints = _hints(function, name)
        takes = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise InvalidInput(
                    name, f"{parameter} cannot be passed; name the parameters it takes: {', '.join(offered)}"
                )
            if parameter.name in offered:
                takes.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise InvalidInput(
                    f"{name}.{parameter.name}", f"is not available; the function may take {', '.join(offered)}"
                )
        self.takes = tuple(takes)
        self._params = checked_type(hints.get("params", Any), field=f"{name}.params")
        self.fields: Mapping[str, Any] | None = _fields(self._params)
        """the declared types of the parameters, if any"""
        self._check = None if self._params in (Any, dict) else field_check(self._params)

    def params(self, data: dict[str, Any]) -> Any:
        """A parameter set in the type that the function declares; raises `BadArguments` with the field."""
        if self._params in (Any, dict):
            return dict(data)
        try:
            return msgspec.convert(data, self._params, strict=False)
        except msgspec.ValidationError as error:
            raise BadArguments(f"{self.name}.params", str(error)) from None

    def given(self, data: dict[str, Any]) -> Any:
        """The same at submit: refuses names that are not declared, which would have no effect. Stored sets still
        run."""
        if self._check is not None and (unknown := self._check(data)) is not None:
            raise InvalidInput(f"{self.name}.params{unknown.path}", unknown.problem)
        return self.params(data)

    def stored(self, data: dict[str, Any]) -> dict[str, Any]:
        """The same as data, with declared defaults and number types: equal parameters have the same address, from a
        program and from a command line."""
        # the order of a set differs between processes; its address must not
        stored = msgspec.to_builtins(self.given(data), str_keys=True, order="deterministic")
        return stored if isinstance(stored, dict) else dict(data)

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
        except NameError:  # names of a local scope: values are converted as undeclared
            return None
    return None


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise InvalidInput(name, f"the name {error.name!r} in its annotations is not known; import it") from None
