"""Data as tasks store it: msgpack in one canonical order, and which types can be read back from it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Never, NoReturn, cast
from uuid import UUID

import msgspec
from msgspec.inspect import CustomType, Type, type_info

from ..errors import InvalidInput
from .type_errors import plain_type

_ordered = msgspec.msgpack.Encoder(order="deterministic").encode
_unordered = msgspec.msgpack.Encoder().encode
#: errors of encoding or decoding data
UNSTORABLE = (TypeError, ValueError, OverflowError, RecursionError, UnicodeError, msgspec.MsgspecError)
#: types that msgpack has a format for; others become text
_NATIVE = (bytes, bytearray, datetime)
#: parts of the encoder's messages about data that it cannot sort
_NO_ORDER = ("str keys", "not supported between instances")
#: types with an order, or without parts
_SIMPLE = frozenset({str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, UUID, Decimal})
_SETS = (set, frozenset)
#: from this length on it is faster to check the types of all items at once
_MANY = 16
_ADVICE = (
    "use a dataclass, a msgspec.Struct, a TypedDict or plain data, or leave the annotation out to pass data unchecked"
)


def canonical(value: Any) -> bytes:
    """The same bytes for equal data in every process, whatever the order of its mappings and sets.

    >>> canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1})
    True
    """
    try:
        data = _ordered(value)
    except TypeError as error:
        if not any(words in str(error) for words in _NO_ORDER):
            raise
    else:
        if type(value) in _SIMPLE or not _is_ordered_in_part(value):
            return data
    # the encoder cannot sort keys that are not text, nor sets with other than simple values
    return _unordered(_in_order(msgspec.to_builtins(_without_sets(value), builtin_types=_NATIVE, str_keys=False)))


def _is_ordered_in_part(value: Any) -> bool:
    """Whether the value has a set of items without a total order, such as other sets."""
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind in _SETS:
        return not _SIMPLE.issuperset(map(type, value))
    elif isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    elif kind is not list and kind is not tuple:
        value = [getattr(value, name, None) for name in _fields(kind)]
    if len(value) > _MANY and _SIMPLE.issuperset(map(type, value)):
        return False
    for part in value:  # noqa: SIM110 - `any` takes twice as long, and this is done for every submit
        if type(part) not in _SIMPLE and _is_ordered_in_part(part):
            return True
    return False


def _fields(kind: Any) -> Iterable[str]:
    """The names of the fields of a type, if it has fields."""
    if issubclass(kind, msgspec.Struct):
        return cast("tuple[str, ...]", kind.__struct_fields__)
    if (fields := getattr(kind, "__dataclass_fields__", None)) is not None:
        return cast("dict[str, Any]", fields)
    return [attribute.name for attribute in getattr(kind, "__attrs_attrs__", ())]


def _without_sets(value: Any) -> Any:
    """The value with sorted tuples instead of sets."""
    if isinstance(value, _SETS):
        return tuple(sorted(map(_without_sets, value), key=canonical))
    if isinstance(value, dict):
        return {_without_sets(key): _without_sets(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_without_sets, value))
    if isinstance(value, list):
        return list(map(_without_sets, value))
    changed = {
        name: sorted_part
        for name in _fields(type(value))
        if (sorted_part := _without_sets(part := getattr(value, name, None))) != part
    }
    if not changed:
        return value
    put = msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__
    value = copy.copy(value)
    for name, part in changed.items():
        put(value, name, part)
    return value


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value, key=_rank)}
    if isinstance(value, list | tuple):
        return [_in_order(part) for part in value]
    return value


def _rank(key: Any) -> tuple[str, Any]:
    """The sort key of a mapping's key. Keys of one type are compared directly, except tuples, which may mix types."""
    return type(key).__name__, _unordered(key) if isinstance(key, tuple) else key


def checked_type(annotation: Any, *, field: str) -> Any:
    """The type to decode an annotation into; a type that cannot be stored or read back is refused with advice."""
    if annotation is object:
        return Any
    if annotation is NoReturn or annotation is Never:
        return None
    try:
        info = type_info(annotation)
    except TypeError as error:
        raise InvalidInput(
            field, f"{plain_type(annotation)} cannot be distinguished as data: {error}; {_ADVICE}"
        ) from None
    except NameError as error:
        raise InvalidInput(
            field, f"the name {error.name!r} in its annotation is unknown; import it where tasks run"
        ) from None
    for custom in _customs(info, set()):
        raise InvalidInput(field, f"{plain_type(custom.cls)} cannot be stored as data; {_ADVICE}")
    return annotation


def _customs(node: Any, seen: set[Any]) -> Iterator[CustomType]:
    """The types unknown to msgspec, anywhere within a type."""
    if isinstance(node, CustomType):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _customs(part, seen)
    elif isinstance(node, Type) or type(node).__name__ == "Field":
        if (cls := getattr(node, "cls", None)) is not None:
            if cls in seen:  # a type may contain itself
                return
            seen.add(cls)
        for name in node.__struct_fields__:
            if name not in ("cls", "default", "default_factory", "tag"):
                yield from _customs(getattr(node, name), seen)
