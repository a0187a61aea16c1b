"""Compressed bodies: gzip, deflate, zstd, and br where a package for it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import zstandard

from ....errors import CallFailed

_BROTLI = next((name for name in ("brotli", "brotlicffi") if importlib.util.find_spec(name)), None)
ACCEPTED = "gzip, deflate, zstd" + (", br" if _BROTLI else "")
"""the default Accept-Encoding, as in browsers"""


class Decoder(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _Members:
    """A body of several gzip members or zstd frames, each beginning with the same byte."""

    def __init__(self, make: Callable[[], Any], begins: bytes) -> None:
        self._make = make
        self._begins = begins
        self._inner = make()

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    def decompress(self, data: bytes, /) -> bytes:
        made = b""
        while data:
            if self._inner.eof:
                if data[:1] != self._begins:
                    break  # padding after the last one
                self._inner = self._make()
            made += self._inner.decompress(data)
            data = self._inner.unused_data
        return made

    def flush(self) -> bytes:
        rest: bytes = self._inner.flush()
        return rest


def _gzip() -> Decoder:
    return _Members(lambda: zlib.decompressobj(16 + zlib.MAX_WBITS), b"\x1f")


def _zstd() -> Decoder:
    return _Members(lambda: zstandard.ZstdDecompressor().decompressobj(), b"\x28")


class _Deflate:
    """Deflate has two formats; the first byte decides."""

    def __init__(self) -> None:
        self._inner: Any = None

    @property
    def eof(self) -> bool:
        return self._inner is None or bool(self._inner.eof)

    def decompress(self, data: bytes, /) -> bytes:
        if self._inner is None and data:
            self._inner = zlib.decompressobj() if data[0] & 0x0F == 8 else zlib.decompressobj(-zlib.MAX_WBITS)
        return self._inner.decompress(data) if self._inner else b""

    def flush(self) -> bytes:
        return self._inner.flush() if self._inner else b""


class _Brotli:
    @property
    def eof(self) -> bool:
        return bool(self._inner.is_finished())

    def __init__(self) -> None:
        self._inner: Any = importlib.import_module(str(_BROTLI)).Decompressor()

    def decompress(self, data: bytes, /) -> bytes:
        made: bytes = self._inner.process(data) if hasattr(self._inner, "process") else self._inner.decompress(data)
        return made

    def flush(self) -> bytes:
        return b""


_BROKEN: tuple[type[Exception], ...] = (zlib.error, zstandard.ZstdError)
if _BROTLI:
    _BROKEN = (*_BROKEN, importlib.import_module(_BROTLI).error)

_MAKERS: dict[str, Callable[[], Any]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _Deflate,
    "zstd": _zstd,
    **({"br": _Brotli} if _BROTLI else {}),
}


def is_known(encoding: str) -> bool:
    """Whether a Content-Encoding can be decoded."""
    return all(name.strip().lower() in (*_MAKERS, "identity", "") for name in encoding.split(","))


def decoders(encoding: str) -> list[Decoder]:
    """The decoders of a Content-Encoding, in the order of use; raises `CallFailed` for an unknown one."""
    names = [name.strip().lower() for name in encoding.split(",")]
    made: list[Decoder] = []
    for name in reversed(names):
        if name in ("", "identity"):
            continue
        if name not in _MAKERS:
            raise CallFailed("encoding", f"the body is encoded as {name!r}; only {', '.join(_MAKERS)} can be decoded")
        made.append(_MAKERS[name]())
    return made


def decoded(data: bytes, encoding: str) -> bytes:
    """Decompress a whole body."""
    for decoder in decoders(encoding) if data else ():
        data = undo(decoder, data) + undo_end(decoder)
    return data


def undo(decoder: Decoder, data: bytes) -> bytes:
    try:
        return decoder.decompress(data)
    except _BROKEN as error:
        raise CallFailed("encoding", f"the body cannot be decompressed ({error})") from None


def undo_end(decoder: Decoder) -> bytes:
    """The rest from a decoder; raises `CallFailed` if the data is incomplete."""
    try:
        rest = decoder.flush()
    except _BROKEN as error:
        raise CallFailed("encoding", f"the body cannot be decompressed ({error})") from None
    if not decoder.eof:
        raise CallFailed("encoding", "the body cannot be decompressed (it ends too early)")
    return rest
