"""Payloads and results as bytes: msgpack, in one canonical order, within the size limit."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ..errors import InvalidInput, PayloadTooLarge

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder().decode


def encoded(value: Any, *, field: str, limit: int) -> bytes:
    """A value as it is stored. What cannot be stored, or could not be read back, is refused here.

    >>> encoded({"b": 1, "a": 2}, field="payload", limit=100) == encoded({"a": 2, "b": 1}, field="payload", limit=100)
    True
    """
    try:
        data = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError, msgspec.MsgspecError) as error:
        raise InvalidInput(field, f"cannot be stored as data: {str(error) or type(error).__name__}") from None
    if len(data) > limit:
        raise PayloadTooLarge(
            field,
            f"{len(data)} bytes are more than the limit of {limit}; store the data elsewhere and pass a reference",
        )
    try:
        # raw bytes and extension types are passed through by the encoder unread
        _decode(data)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(field, f"could not be read back: {str(error) or type(error).__name__}") from None
    return data


def decoded(data: bytes) -> Any:
    """A stored payload or result as data."""
    return _decode(data)


def content_of(name: str, payload: bytes) -> bytes:
    """What an idempotency key stands for: the task and its canonical arguments, not the options."""
    return hashlib.sha256(name.encode() + b"\0" + payload).digest()
