"""Requests and answers, without the protocol that carries them."""

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
    """What a request is answered with. Protocols keep their own form of it in `wire`."""

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
        """the body in parts of unknown length in all, `gap` seconds apart"""
        self.gap = gap
        self.wire = b""


class Request:
    """A request that arrived whole. Nothing in it is changed afterwards, so equal ones may share it."""

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
        """its answer, if that is always the same and due at once"""
        self.tally: PathTally | None = None
        """where it is counted, if it has such an answer"""

    def header(self, name: str) -> str:
        """All values of a header; names are in lower case."""
        return ", ".join(value for key, value in self.headers if key == name)


#: what steers the target is neither counted nor delayed
CONTROL = frozenset({"/stats", "/stats/reset", "/stats/delays", "/stall"})


@functools.lru_cache(maxsize=64)
def filler(size: int) -> bytes:
    """So many bytes of text."""
    return b"ok"[:size] if size <= 2 else b"x" * size
