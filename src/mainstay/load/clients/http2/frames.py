"""Frames of HTTP/2 (RFC 9113) as bytes. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....errors import CallFailed

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)

NO_ERROR = 0x0
PROTOCOL_ERROR = 0x1
REFUSED_STREAM = 0x7
CANCEL = 0x8
_CODES = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: the maximum frame size, unless the other side allows more; this client does not
USUAL_FRAME = 16_384
USUAL_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1
_HEAD = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def ends(self) -> bool:
        return bool(self.flags & END_STREAM)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """
    >>> frame(PING, ACK, 0, b"12345678").hex()
    '0000080601000000003132333435363738'
    """
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


class FrameReader:
    """Takes bytes in pieces of any size, and yields the complete frames.

    >>> reader = FrameReader()
    >>> ping = frame(PING, 0, 0, b"12345678")
    >>> [list(reader.feed(piece)) for piece in (ping[:5], ping[5:])]
    [[], [Frame(kind=6, flags=0, stream=0, payload=b'12345678')]]
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        if self._held:
            data = self._held + data
            self._held = b""
        at, total = 0, len(data)
        while total - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            size = high << 8 | low
            if size > USUAL_FRAME:
                raise CallFailed("protocol", f"the server sent a frame of {size} bytes, or does not speak HTTP/2")
            end = at + _HEAD.size + size
            if end > total:
                break
            yield Frame(kind, flags, stream & LARGEST_WINDOW, data[at + _HEAD.size : end])
            at = end
        self._held = data[at:]


def content(found: Frame) -> bytes:
    """The payload of DATA or HEADERS, without padding and priority."""
    payload = found.payload
    start, end = 0, len(payload)
    if found.flags & PADDED:
        if not payload or payload[0] >= end:
            raise CallFailed("protocol", "the server sent a frame with more padding than it has bytes")
        start, end = 1, end - payload[0]
    if found.kind == HEADERS and found.flags & WITH_PRIORITY:
        start += 5
    return payload[start:end]


def settings(values: Mapping[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in values.items()))


def settings_of(payload: bytes) -> dict[int, int]:
    if len(payload) % _SETTING.size:
        raise CallFailed("protocol", "the server sent incomplete settings")
    return dict(_SETTING.iter_unpack(payload))


def number(value: int) -> bytes:
    return _NUMBER.pack(value)


def number_of(payload: bytes, at: int = 0) -> int:
    """A 32-bit number."""
    if len(payload) < at + _NUMBER.size:
        raise CallFailed("protocol", "the server sent an incomplete frame")
    value: int = _NUMBER.unpack_from(payload, at)[0]
    return value


def code_name(code: int) -> str:
    """
    >>> code_name(7), code_name(99)
    ('REFUSED_STREAM', 'error 99')
    """
    return _CODES[code] if code < len(_CODES) else f"error {code}"
