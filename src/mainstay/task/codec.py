"""A payload codec: what is stored can be encrypted or compressed on its way to the store and back.

Sealed data is a msgpack extension, so that it is still msgpack to the store, and so that what was stored before there
was a codec is told apart from it and stays readable.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ..control.payload import SEALED, is_sealed
from ..errors import InvalidInput

#: how an extension begins: ext 8, 16, 32 and fixext 1, 2, 4, 8, 16
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
    mainstay.errors.InvalidInput: payload: is sealed by a codec, and this app has none; give it the same App(codec=...)
    """

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec
        self.seals = codec is not None

    def seal(self, data: bytes) -> bytes:
        """As it is stored; raises `InvalidInput` when the codec fails, so that nothing is stored in the clear."""
        if self._codec is None:
            return data
        try:
            return _encode(msgspec.msgpack.Ext(SEALED, self._codec.encode(data)))
        except Exception as error:  # the codec is not ours, it may raise anything
            raise InvalidInput("codec", f"it could not seal the data ({_said(error)})") from error

    def open(self, data: bytes, *, field: str) -> bytes:
        """What was sealed, or the data itself if it was not; raises `InvalidInput`."""
        if not data or data[0] not in _HEADS:
            return data
        found = _decode(data)
        if not is_sealed(found):
            return data
        if self._codec is None:
            raise InvalidInput(field, "is sealed by a codec, and this app has none; give it the same App(codec=...)")
        try:
            return self._codec.decode(bytes(found.data))
        except Exception as error:  # the codec is not ours, it may raise anything
            rule = f"the codec cannot open it ({_said(error)}); was it sealed by another one, or with another key?"
            raise InvalidInput(field, rule) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
