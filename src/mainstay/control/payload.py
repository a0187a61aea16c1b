"""Payloads and results as bytes: msgpack, in one canonical order, within the size limit."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ..errors import InvalidInput, PayloadTooLarge
from .failure import shown

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder().decode
_REFUSED = (TypeError, ValueError, OverflowError, RecursionError, UnicodeError, msgspec.MsgspecError)
#: how deep to search for the value that cannot be stored; deeper data is most often a cycle
_DEEP = 50
#: the extension type of data that a codec sealed; always the whole payload
SEALED = 77


class _ExtensionFound(ValueError):
    """Extension types of MessagePack are refused: only their producer knows their meaning."""


def _no_extension(code: int, _: memoryview) -> None:
    raise _ExtensionFound(f"extension types of MessagePack are not accepted (type {code}); pass the bytes alone")


_check = msgspec.msgpack.Decoder(ext_hook=_no_extension).decode


def encoded(value: Any, *, field: str, limit: int) -> bytes:
    """Encode a value for the store; refuse one that cannot be stored or read back.

    >>> encoded({"b": 1, "a": 2}, field="payload", limit=100) == encoded({"a": 2, "b": 1}, field="payload", limit=100)
    True
    """
    try:
        data = _encode(value)
    except _REFUSED as error:
        raise InvalidInput(field, _why(value, error)) from None
    if len(data) > limit:
        raise _too_large(data, field, limit)
    try:
        # the encoder passes raw bytes and extension types through unread
        _check(data)
    except _ExtensionFound as error:
        if not is_sealed(_decode(data)):
            raise InvalidInput(field, _why(value, error)) from None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(field, f"could not be read back: {str(error) or type(error).__name__}") from None
    return data


def as_given(value: msgspec.Raw, *, field: str, limit: int) -> bytes:
    """A value that is encoded already. It is trusted to be msgpack; only its size is checked."""
    data = bytes(value)
    if len(data) > limit:
        raise _too_large(data, field, limit)
    return data


def decoded(data: bytes) -> Any:
    """A stored payload or result as data."""
    return _decode(data)


def is_sealed(value: Any) -> bool:
    """Whether decoded data was sealed by a codec."""
    return isinstance(value, msgspec.msgpack.Ext) and value.code == SEALED


def _too_large(data: bytes, field: str, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        field, f"{len(data)} bytes are more than the limit of {limit}; store the data elsewhere and pass a reference"
    )


def _why(value: Any, error: Exception) -> str:
    """Which part of a value cannot be stored, and why."""
    path = ""
    for _ in range(_DEEP):
        for step, part in _parts(value):
            if (refused := _refusal(part)) is not None:
                path, value, error = path + step, part, refused
                break
        else:
            break
    else:
        return "cannot be stored as data: nested too deeply, or within itself"
    where = f"${path} " if path else ""
    if isinstance(value, dict) and (strange := [key for key in value if not isinstance(key, str)]):
        kind = type(strange[0]).__name__
        return f"{where}cannot be stored as data: keys must be text, but {shown(strange[0])} is {kind}"
    return f"{where}cannot be stored as data: {str(error) or type(error).__name__}"


def _refusal(value: Any) -> Exception | None:
    try:
        _check(_encode(value))
    except _REFUSED as error:
        return error
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value, each with its step in the path."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield (f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{shown(key)}]"), part
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield f"[{index}]", part
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield f".{name}", getattr(value, name)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name, None)


def unique_of(name: str, payload: bytes) -> str:
    """The unique key of `unique=True`: a digest of the task and its arguments."""
    return content_of(name, payload).hex()[:32]


def content_of(name: str, payload: bytes) -> bytes:
    """The content of an idempotency key: the task and its canonical arguments, not the options."""
    return hashlib.sha256(name.encode() + b"\0" + payload).digest()
