"""Requests and responses of the target, independent of the protocol."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from .counts import PathTally

HeaderList = tuple[tuple[str, str], ...]
TEXT: HeaderList = (("content-type", "text/plain"),)
JSON: HeaderList = (("content-type", "application/json"),)


class TargetResponse:
    """A response. HTTP/1.1 caches its bytes in `wire`."""

    __slots__ = ("body", "gap", "headers", "pieces", "status", "wire")

    def __init__(
        self,
        status: int | str,
        body: bytes = b"",
        headers: HeaderList = TEXT,
        *,
        pieces: tuple[bytes, ...] = (),
        gap: float = 0.0,
    ) -> None:
        self.status = status
        """"closed" and "reset" end the connection instead"""
        self.body = body
        self.headers = headers
        self.pieces = pieces
        """a body of unknown length, in pieces that are `gap` seconds apart"""
        self.gap = gap
        self.wire = b""


class Request:
    """A complete request. Equal requests share one object."""

    __slots__ = ("body", "control", "headers", "keep_alive", "method", "path", "query", "tally", "version", "wire")

    def __init__(
        self,
        method: str,
        target: str,
        *,
        headers: list[tuple[str, str]],
        body: bytes = b"",
        version: str = "1.1",
        keep_alive: bool = True,
    ) -> None:
        self.method = method
        path, _, query = target.partition("?")
        self.path = unquote(path)
        self.query = dict(parse_qsl(query, keep_blank_values=True))
        self.headers = headers
        self.body = body
        self.version = version
        self.keep_alive = keep_alive
        self.control = self.path in CONTROL
        self.wire = b""
        """its response, if that is always the same and has no delay"""
        self.tally: PathTally | None = None
        """its counts, if it has such a response"""

    def header(self, name: str) -> str:
        """All values of a header; names are in lower case."""
        return ", ".join(value for key, value in self.headers if key == name)


#: routes that control the target are neither counted nor delayed
CONTROL = frozenset({"/stats", "/stats/reset", "/stats/delays", "/stall"})


@functools.lru_cache(maxsize=64)
def filler(size: int) -> bytes:
    """Text of this many bytes."""
    return b"ok"[:size] if size <= 2 else b"x" * size
