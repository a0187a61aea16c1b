"""The files that contain documents: NDJSON, compressed with zstd where that is smaller.

The first line describes the file. Its `schema` has two numbers: a program refuses a higher first one. With a higher
second one there may be new fields or kinds of documents, which it keeps as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import zstandard

from ...errors import SchemaTooNew, StoreDamaged
from .documents import Line

SCHEMA = (1, 0)

_MAGIC = b"\x28\xb5\x2f\xfd"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encoded(line: Line) -> bytes:
    return _encode(line)


def packed(lines: Iterable[bytes]) -> bytes:
    """
    >>> unpacked(packed([b'{"t": "commit", "schema": [1, 0]}']), "here")
    [(b'{"t": "commit", "schema": [1, 0]}', {'t': 'commit', 'schema': [1, 0]})]
    """
    text = _text(lines)
    small = _compressed(text)
    return small if len(small) < len(text) else text


def always_packed(lines: Iterable[bytes]) -> bytes:
    """Compressed even if that is not smaller, so that people can always read the file in the same way."""
    return _compressed(_text(lines))


def _compressed(text: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(text)


def _text(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def unpacked(body: bytes, where: str) -> list[tuple[bytes, Line]]:
    """The lines, as text and as documents; refuses a file with a newer schema."""
    try:
        text = zstandard.decompress(body) if body.startswith(_MAGIC) else body
        lines = [(line, _decode(line)) for line in text.splitlines()]
        check_schema(lines[0][1], where)
    except (zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
        raise damaged(where, error) from None
    return lines


def check_schema(document: Any, where: str) -> None:
    major, minor = document["schema"]
    if major > SCHEMA[0]:
        raise SchemaTooNew(
            f"{where} has schema {major}.{minor}, and this Mainstay knows {SCHEMA[0]}.{SCHEMA[1]}: upgrade Mainstay in "
            "this environment; nothing was changed"
        )


def damaged(where: str, error: object) -> StoreDamaged:
    return StoreDamaged(
        f"{where} cannot be read ({error}). It was left as it is: restore it from a backup or an older version of the "
        "object; nothing after it can be known without it"
    )


def split(lines: Iterable[bytes], most: int) -> Iterator[list[bytes]]:
    """Parts of at most this number of bytes before compression; a longer line is a part of its own.

    >>> list(split([b"aa", b"b", b"cccc"], 4))
    [[b'aa', b'b'], [b'cccc']]
    """
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and size + len(line) > most:
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line)
    if part:
        yield part
