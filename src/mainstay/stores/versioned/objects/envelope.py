"""The stored form of a value: a mark, a nonce that no other write has, and the value itself."""

from __future__ import annotations

from ....errors import StoreError

_VALUE = b"MSv\x01"
_REMOVED = b"MSr\x01"
_HEAD = 20
#: bytes in the envelope of a deleted value. That of a value is longer, even of an empty one
REMOVED_SIZE = _HEAD


def sealed(value: bytes, nonce: bytes) -> bytes:
    """
    >>> opened(sealed(b"", b"n" * 16), "place")
    b''
    """
    return b"".join((_VALUE, nonce, b"\x00", value))


def removed(nonce: bytes) -> bytes:
    """
    >>> len(removed(b"n" * 16)) == REMOVED_SIZE
    True
    """
    return _REMOVED + nonce


def nonce_of(body: bytes) -> bytes:
    return body[4:_HEAD]


def opened(body: bytes, where: str) -> bytes | None:
    """The value; None if it was deleted."""
    if body[:4] == _VALUE and len(body) > _HEAD:
        return body[_HEAD + 1 :]
    if body[:4] == _REMOVED and len(body) == REMOVED_SIZE:
        return None
    raise StoreError(f"{where} was not written by Mainstay, or is damaged; remove it or use another prefix")
