"""The stored form of one part: a byte for the way, then the content, compressed if that helps.

Content that shrinks by more than the ratio limit is stored as it is: then everything above the limit is an attack, and
unpacking can refuse it before it fills the memory.
"""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path

import zstandard

from ..errors import BundleCorrupt
from .manifest import BundleLimits

_PIECE = 256 * 1024
_PLAIN, _ZSTANDARD = b"\x00", b"\x01"
#: the window of the compressor, 2 MiB: a frame that asks for more memory is refused
_WINDOW_LOG = 21


def pack(content: bytes, limits: BundleLimits) -> bytes:
    """The stored form of a content."""
    settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=_WINDOW_LOG)
    frame = zstandard.ZstdCompressor(compression_params=settings).compress(content)
    if len(frame) >= len(content) or len(content) > (len(frame) + 1) * limits.ratio:
        return _PLAIN + content
    return _ZSTANDARD + frame


def unpack(packed: bytes, *, digest: str, most: int, limits: BundleLimits, path: str = "") -> bytes:
    """The content of a stored form. Refuses more than `most` bytes and a ratio above the limit while it unpacks, and at
    the end a digest that differs."""
    content = bytearray()
    source: BytesIO | zstandard.ZstdDecompressionReader
    way, body = packed[:1], memoryview(packed)[1:]
    if way == _ZSTANDARD:
        # `read` returns at most what is asked for, whatever the ratio of the piece is
        source = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).stream_reader(body)
    elif way == _PLAIN:
        source = BytesIO(body)
    else:
        raise BundleCorrupt(digest, "its stored form is not known here", path=path)
    try:
        while piece := source.read(_PIECE):
            content += piece
            if len(content) > most:
                raise BundleCorrupt(digest, f"it unpacks to more than {most} bytes", path=path)
            if len(content) > len(packed) * limits.ratio:
                raise BundleCorrupt(digest, f"it unpacks to more than {limits.ratio} times its packed size", path=path)
    except zstandard.ZstdError as error:
        raise BundleCorrupt(digest, f"it cannot be unpacked ({error})", path=path) from None
    if (found := hashlib.sha256(content).hexdigest()) != digest:
        raise BundleCorrupt(digest, f"its content has the digest {found}", path=path)
    return bytes(content)


def file_digest(path: Path) -> tuple[int, str]:
    """The size and the digest of a file, with little memory."""
    with path.open("rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


__all__ = ["file_digest", "pack", "unpack"]
