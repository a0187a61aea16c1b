"""A payload codec: encrypts or compresses data on its way to the store and back.

Sealed data is a msgpack extension: still msgpack to the store, and different from data that was stored without a codec,
which stays readable.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ..control import SEALED, is_sealed
from ..errors import InvalidInput

#: the first byte of an extension: ext 8, 16, 32 and fixext 1, 2, 4, 8, 16
_HEADS = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Codec(Protocol):
    """Turns stored bytes into other bytes and back. Called from any thread; must be pure, apart from salts."""

    def encode(self, data: bytes) -> bytes: ...

    def decode(self, data: bytes) -> bytes: ...


class Sealer:
    """Applies a codec, or none.

    >>> import zlib
    >>> class Zip:
    ...     encode = staticmethod(zlib.compress)
    ...     decode = staticmethod(zlib.decompress)
    >>> sealed = Sealer(Zip()).seal(b"\\x01")
    >>> Sealer(Zip()).open(sealed, field="payload"), Sealer(Zip()).open(b"\\x01", field="payload")
    (b'\\x01', b'\\x01')
    >>> Sealer(None).open(sealed, field="payload")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: payload: is sealed by a codec, but this app has none; give it the same App(codec=...)
    """

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec
        self.seals = codec is not None

    def seal(self, data: bytes) -> bytes:
        """The data as it is stored; raises `InvalidInput` if the codec fails, so that no clear text is stored."""
        if self._codec is None:
            return data
        try:
            return _encode(msgspec.msgpack.Ext(SEALED, self._codec.encode(data)))
        except Exception as error:  # the codec is not ours, it may raise anything
            raise InvalidInput("codec", f"could not seal the data ({_error_text(error)})") from error

    def open(self, data: bytes, *, field: str) -> bytes:
        """The data before it was sealed; raises `InvalidInput`. Unsealed data is returned as it is."""
        if not data or data[0] not in _HEADS:
            return data
        value = _decode(data)
        if not is_sealed(value):
            return data
        if self._codec is None:
            raise InvalidInput(field, "is sealed by a codec, but this app has none; give it the same App(codec=...)")
        try:
            return self._codec.decode(bytes(value.data))
        except Exception as error:  # the codec is not ours, it may raise anything
            rule = f"the codec cannot open it ({_error_text(error)}); was it sealed by another codec or key?"
            raise InvalidInput(field, rule) from error


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
