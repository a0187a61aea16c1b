"""The stored form of one file: a byte for the way, then the content, compressed if that helps.

Content that shrinks by more than the ratio limit is stored as it is: then everything above the limit is an attack, and
unpacking can refuse it. Both ways read and write pieces, so memory does not depend on the size of a file.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import BinaryIO

import zstandard

from ...errors import BundleCorrupt, InvalidInput
from .manifest import BundleLimits

PIECE = 256 * 1024
_PLAIN, _ZSTANDARD = b"\x00", b"\x01"
#: the compressor's window, 2 MiB: both sides need that much memory
_WINDOW_LOG = 21


def pack_file(source: Path, draft: Path, *, digest: str, limits: BundleLimits) -> None:
    """Write the packed form of a file to a draft. Refuses a file that has changed since its digest was computed."""
    hashed, size = hashlib.sha256(), 0
    settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=_WINDOW_LOG)
    with source.open("rb") as content, draft.open("wb") as packed:
        packed.write(_ZSTANDARD)
        with zstandard.ZstdCompressor(compression_params=settings).stream_writer(packed, closefd=False) as writer:
            while piece := content.read(PIECE):
                hashed.update(piece)
                size += len(piece)
                writer.write(piece)
        length = packed.tell()
        if hashed.hexdigest() != digest:
            raise InvalidInput(str(source), "the file has changed since the bundle was collected; collect it again")
        if length > size or size > length * limits.ratio:
            packed.seek(0)
            packed.truncate()
            packed.write(_PLAIN)
            content.seek(0)
            shutil.copyfileobj(content, packed, PIECE)


def unpack_file(
    packed: BinaryIO,
    packed_size: int,
    target: BinaryIO | None,
    *,
    digest: str,
    size: int | None,
    limits: BundleLimits,
    path: str = "",
) -> int:
    """Write the content of a packed file to a target (None: only check it) and return its size. Refuses more than
    `size` bytes and a ratio above the limit before they are written, and at the end a digest that differs."""
    way = packed.read(1)
    most = packed_size * limits.ratio
    source: BinaryIO | zstandard.ZstdDecompressionReader
    if way == _ZSTANDARD:
        # `read` gives back at most what is asked for, whatever the ratio of the piece is
        source = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).stream_reader(packed, closefd=False)
    elif way == _PLAIN:
        source = packed
    else:
        raise BundleCorrupt(digest, "its stored form is not known here", path=path)
    hashed, total = hashlib.sha256(), 0
    try:
        while piece := source.read(PIECE):
            total += len(piece)
            if size is not None and total > size:
                raise BundleCorrupt(digest, f"it unpacks to more than its {size} bytes", path=path)
            if total > most:
                raise BundleCorrupt(digest, f"it unpacks to more than {limits.ratio} times its packed size", path=path)
            if total > limits.data_bytes:
                raise BundleCorrupt(digest, f"it unpacks to more than {limits.data_bytes} bytes", path=path)
            hashed.update(piece)
            if target is not None:
                target.write(piece)
    except zstandard.ZstdError as error:
        raise BundleCorrupt(digest, f"it cannot be unpacked ({error})", path=path) from None
    if size is not None and total != size:
        raise BundleCorrupt(digest, f"it has {total} bytes instead of {size}", path=path)
    if hashed.hexdigest() != digest:
        raise BundleCorrupt(digest, f"its content has the digest {hashed.hexdigest()}", path=path)
    return total


def file_digest(path: Path) -> tuple[int, str]:
    """The size and the digest of a file, with little memory."""
    with path.open("rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


__all__ = ["PIECE", "file_digest", "pack_file", "unpack_file"]
