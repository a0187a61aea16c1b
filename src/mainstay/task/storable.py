"""Data as tasks store it: msgpack in one canonical order, and which types can be read back from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Never, NoReturn

import msgspec
from msgspec.inspect import CustomType, Type, type_info

from ..errors import InvalidInput
from .wording import plain_type

_ordered = msgspec.msgpack.Encoder(order="deterministic").encode
_unordered = msgspec.msgpack.Encoder().encode
#: what msgpack has a form of its own for; the rest becomes text
_NATIVE = (bytes, bytearray, datetime)
_ADVICE = (
    "use a dataclass, a msgspec.Struct, a TypedDict or plain data, or leave the annotation out to pass data unchecked"
)


def canonical(value: Any) -> bytes:
    """The same bytes for equal data, whatever order its mappings were filled in.

    >>> canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1})
    True
    """
    try:
        return _ordered(value)
    except TypeError as error:
        if "str keys" not in str(error):
            raise
    # the encoder puts mappings in order by their keys as text only; the others are put in order here
    return _unordered(_in_order(msgspec.to_builtins(value, builtin_types=_NATIVE, str_keys=False)))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value, key=lambda key: (type(key).__name__, key))}
    if isinstance(value, list | tuple):
        return [_in_order(part) for part in value]
    return value


def checked_type(annotation: Any, *, field: str) -> Any:
    """The type to decode into for an annotation; what could never be stored or read back is refused with advice."""
    if annotation is object:
        return Any
    if annotation is NoReturn or annotation is Never:
        return None
    try:
        info = type_info(annotation)
    except TypeError as error:
        raise InvalidInput(
            field, f"{plain_type(annotation)} cannot be told apart as data: {error}; {_ADVICE}"
        ) from None
    except NameError as error:
        raise InvalidInput(
            field, f"the name {error.name!r} in its annotation is not known; import it where tasks run"
        ) from None
    for custom in _customs(info, set()):
        raise InvalidInput(field, f"{plain_type(custom.cls)} cannot be stored as data; {_ADVICE}")
    return annotation


def _customs(node: Any, seen: set[Any]) -> Iterator[CustomType]:
    """The types msgspec knows nothing about, wherever they are within a type."""
    if isinstance(node, CustomType):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _customs(part, seen)
    elif isinstance(node, Type) or type(node).__name__ == "Field":
        if (cls := getattr(node, "cls", None)) is not None:
            if cls in seen:  # a type may hold itself
                return
            seen.add(cls)
        for name in node.__struct_fields__:
            if name not in ("cls", "default", "default_factory", "tag"):
                yield from _customs(getattr(node, name), seen)
