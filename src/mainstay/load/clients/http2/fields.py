"""Headers of HTTP/2: encoded once for equal calls, and decoded once for equal responses.

That works because neither side refers to earlier headers of the connection: the client does not, and its settings (a
table of size zero) forbid it for the server. So equal bytes are equal headers, on every connection.
"""

from __future__ import annotations

from ....errors import CallFailed
from ...extra import extra_needed
from ..http.calls import HTTPCall
from ..http.heads import Fields, Head

with extra_needed("HTTP/2"):
    import hpack

_REMEMBERED = 4096
#: headers of the connection, which HTTP/2 does not allow
_LEFT_OUT = frozenset(
    {
        b"host",
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"transfer-encoding",
        b"upgrade",
    }
)
_blocks: dict[bytes, bytes] = {}
_heads: dict[bytes, Head] = {}


def block_of(call: HTTPCall) -> bytes:
    """The headers of a call, compressed."""
    head = call.request if not call.body else call.request[: -len(call.body)]
    known = _blocks.get(head)
    if known is None:
        if len(_blocks) >= _REMEMBERED:
            _blocks.clear()
        known = _blocks[head] = _written(call, head)
    return known


def head_of(block: bytes) -> Head:
    """The decoded headers of a response."""
    known = _heads.get(block)
    if known is None:
        if len(_heads) >= _REMEMBERED:
            _heads.clear()
        known = _heads[block] = _read(block)
    return known


def _written(call: HTTPCall, head: bytes) -> bytes:
    # translates the head of HTTP/1.1, whose encoder has all the rules
    parts = call.parts
    authority, headers = parts.authority, []
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b": ")
        name = name.lower()
        if name == b"host":
            authority = value
        if name and name not in _LEFT_OUT:
            headers.append((name, value))
    pseudo = [
        (b":method", call.method.encode()),
        (b":scheme", b"https" if parts.secure else b"http"),
        (b":authority", authority),
        (b":path", parts.target),
    ]
    # "never indexed": the server need not remember them, because later headers do not refer to them
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*pair) for pair in (*pseudo, *headers)])


def _read(block: bytes) -> Head:
    decoder = hpack.Decoder()
    decoder.header_table_size = 0
    decoder.max_allowed_table_size = 0
    try:
        pairs = [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
        status = int(dict(pairs)[b":status"])
        return Head(
            status=status,
            reason="",
            version="2",
            fields=Fields([pair for pair in pairs if not pair[0].startswith(b":")]),
        )
    except hpack.HPACKError as error:
        raise CallFailed("protocol", f"the headers of the response cannot be decoded ({error})") from None
    except (KeyError, ValueError):
        raise CallFailed("protocol", "the response has no status, or an invalid length") from None
