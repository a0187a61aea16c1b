"""Headers of HTTP/2: written once for each call that is alike, and read once for each answer that begins alike.

That works because neither side refers to headers that were sent before on the connection: we write none that way, and
our settings (a table of size zero) have the server write none. So equal bytes are equal headers, on every connection.
"""

from __future__ import annotations

from ....errors import CallFailed
from ...extra import extra_needed
from ..http.calls import HTTPCall
from ..http.heads import Fields, Head

with extra_needed("HTTP/2"):
    import hpack

_REMEMBERED = 4096
#: they are of the connection, which HTTP/2 has other means for
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
    told = call.request if not call.body else call.request[: -len(call.body)]
    known = _blocks.get(told)
    if known is None:
        if len(_blocks) >= _REMEMBERED:
            _blocks.clear()
        known = _blocks[told] = _written(call, told)
    return known


def head_of(block: bytes) -> Head:
    """What the headers of an answer say."""
    known = _heads.get(block)
    if known is None:
        if len(_heads) >= _REMEMBERED:
            _heads.clear()
        known = _heads[block] = _read(block)
    return known


def _written(call: HTTPCall, told: bytes) -> bytes:
    # the encoder of HTTP/1.1 knows all rules for what is sent; this is its result in other words
    parts = call.parts
    authority, headers = parts.authority, []
    for line in told.split(b"\r\n")[1:]:
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
    # "never indexed": the server keeps none of them for later, because later ones do not refer to them
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*pair) for pair in (*pseudo, *headers)])


def _read(block: bytes) -> Head:
    decoder = hpack.Decoder()
    decoder.header_table_size = 0
    decoder.max_allowed_table_size = 0
    try:
        found = [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
        status = int(dict(found)[b":status"])
        return Head(
            status=status,
            reason="",
            version="2",
            fields=Fields([pair for pair in found if not pair[0].startswith(b":")]),
        )
    except hpack.HPACKError as error:
        raise CallFailed("protocol", f"the headers of the answer cannot be read ({error})") from None
    except (KeyError, ValueError):
        raise CallFailed("protocol", "the answer has no status, or a length that is not a number") from None
