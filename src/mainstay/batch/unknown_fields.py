"""Names in a parameter set that its declared type does not have. A misspelt name would be ignored: every set of a sweep
over it would give the same result."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import inspect


class UnknownField(NamedTuple):
    """A name that is not declared, and its path."""

    path: str
    problem: str


def field_check(declared: Any) -> Callable[[Any], UnknownField | None]:
    """A function that finds the first undeclared name at any depth."""
    info = inspect.type_info(declared)
    return lambda data: _unknown(info, data, "")


def _unknown(info: inspect.Type, data: Any, path: str) -> UnknownField | None:
    if isinstance(info, inspect.Metadata):
        return _unknown(info.type, data, path)
    if isinstance(info, inspect.UnionType):
        # ambiguous if several types fit
        fitting = [one for one in info.types if _takes(one, data)]
        return _unknown(fitting[0], data, path) if len(fitting) == 1 else None
    if isinstance(data, dict):
        if isinstance(info, inspect.StructType | inspect.DataclassType | inspect.TypedDictType):
            return _in_fields(info, data, path)
        if isinstance(info, inspect.DictType):
            return _first(_unknown(info.value_type, value, f"{path}.{name}") for name, value in data.items())
    if isinstance(data, list):
        if isinstance(info, inspect.CollectionType):
            return _first(_unknown(info.item_type, value, f"{path}[{n}]") for n, value in enumerate(data))
        if isinstance(info, inspect.TupleType):
            pairs = zip(info.item_types, data, strict=False)
            return _first(_unknown(one, value, f"{path}[{n}]") for n, (one, value) in enumerate(pairs))
    return None


def _in_fields(
    info: inspect.StructType | inspect.DataclassType | inspect.TypedDictType, data: dict[str, Any], path: str
) -> UnknownField | None:
    known = {field.encode_name: field.type for field in info.fields}
    tag = getattr(info, "tag_field", None)
    for name, value in data.items():
        if name == tag:
            continue
        if name not in known:
            return UnknownField(f"{path}.{name}", _problem(str(name), known))
        if (unknown := _unknown(known[name], value, f"{path}.{name}")) is not None:
            return unknown
    return None


def _takes(info: inspect.Type, data: Any) -> bool:
    if isinstance(info, inspect.Metadata):
        return _takes(info.type, data)
    if isinstance(info, inspect.AnyType | inspect.CustomType):
        return True
    if isinstance(data, dict):
        mappings = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.DictType)
        return isinstance(info, mappings) and not getattr(info, "array_like", False)
    if isinstance(data, list):
        return isinstance(info, inspect.CollectionType | inspect.TupleType) or getattr(info, "array_like", False)
    return False


def _first(found: Any) -> UnknownField | None:
    return next((one for one in found if one is not None), None)


def _problem(name: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it declares {', '.join(known) or 'none'}"
    return f"the study declares no such parameter, so it would have no effect; {hint}"
