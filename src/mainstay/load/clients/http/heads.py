"""Heads of answers: what they say about the body that follows, and their headers.

Most answers of a load test have a head that came before, byte for byte: the same file, within the same second. So heads
are remembered, and looking one up takes the place of parsing it (measured: 0.1 us instead of 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....errors import CallFailed
from ...extra import extra_needed

with extra_needed("HTTP"):
    import httptools

MOST = 64 * 1024
"""bytes of a head"""
_REMEMBERED = 1024
_LONGEST_REMEMBERED = 4096
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_BODYLESS = frozenset({204, 304})

UNTIL_CLOSE = -1
CHUNKED = -2


class Fields(Mapping[str, str]):
    """Headers of an answer. Names in any case; `getlist` has all values of a name.

    >>> fields = Fields([(b"Content-Type", b"text/plain"), (b"Vary", b"a"), (b"Vary", b"b")])
    >>> fields["content-type"], fields.getlist("VARY"), fields.get("etag")
    ('text/plain', ['a', 'b'], None)
    """

    __slots__ = ("_values", "raw")

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self.raw = raw
        """in the order and case in which they came"""
        self._values: dict[str, list[str]] = {}
        for name, value in raw:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._values[name.lower()])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def getlist(self, name: str) -> list[str]:
        return list(self._values.get(name.lower(), ()))

    def __repr__(self) -> str:
        return f"Fields({dict(self)!r})"


class Head:
    """What the first lines of an answer say. Shared by all answers that begin alike; nothing changes it."""

    __slots__ = ("cookies", "failure", "fields", "keep", "length", "location", "plain", "reason", "status", "version")

    def __init__(self, *, status: int, reason: str, version: str, fields: Fields) -> None:
        self.status = status
        self.reason = reason
        self.version = version
        self.fields = fields
        self.failure = f"http {status}" if status >= 400 else ""
        self.cookies = fields.getlist("set-cookie")
        self.location = fields.get("location") if status in _REDIRECTS else None
        self.keep = _keeps(version, fields)
        self.length = _length(status, fields)
        """of the body, in bytes; or UNTIL_CLOSE, or CHUNKED"""
        plain = self.keep and self.length >= 0 and not self.cookies and self.location is None and status >= 200
        self.plain = self.length if plain else -1
        """the same if there is nothing to do but to take the body; else -1"""


def _keeps(version: str, fields: Fields) -> bool:
    words = {word.strip().lower() for word in fields.get("connection", "").split(",")}
    if version == "1.0":
        return "keep-alive" in words
    return "close" not in words


def _length(status: int, fields: Fields) -> int:
    if status < 200 or status in _BODYLESS:
        return 0
    coding = fields.get("transfer-encoding")
    if coding is not None:
        if coding.strip().lower() != "chunked":
            raise CallFailed("protocol", f"the answer has the transfer encoding {coding!r}, which is not known here")
        return CHUNKED
    length = fields.getlist("content-length")
    return int(length[0]) if length else UNTIL_CLOSE


class _Collector:
    __slots__ = ("fields", "reason")

    def __init__(self) -> None:
        self.reason = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_status(self, status: bytes) -> None:
        self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))


heads: dict[bytes, Head] = {}
"""those that came lately, by their bytes"""


def read_head(raw: bytes) -> Head:
    """Parse a head: its bytes up to the empty line, without it."""
    known = heads.get(raw)
    if known is not None:
        return known
    collected = _Collector()
    parser = httptools.HttpResponseParser(collected)
    try:
        parser.feed_data(raw + b"\r\n\r\n")
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise CallFailed("protocol", f"the answer is not HTTP/1 ({error}); it begins {raw[:60]!r}") from None
    head = Head(
        status=parser.get_status_code(),
        reason=collected.reason.decode("latin-1"),
        version=parser.get_http_version(),
        fields=Fields(collected.fields),
    )
    if len(raw) <= _LONGEST_REMEMBERED:
        if len(heads) >= _REMEMBERED:
            heads.clear()
        heads[raw] = head
    return head
