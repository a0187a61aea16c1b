"""Flow control for sending: frame sizes and windows that the server allows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from . import frames as f
from .exchange import Exchange

HIGH = 256 * 1024
"""unsent bytes of an upload, beyond which its producer waits"""


class SendWindow:
    """The send window of one connection."""

    __slots__ = ("_frame", "stream_window", "window")

    def __init__(self) -> None:
        self.window = f.USUAL_WINDOW
        """of the connection"""
        self.stream_window = f.USUAL_WINDOW
        """of a new call"""
        self._frame = f.USUAL_FRAME

    def settle(self, settings: Mapping[int, int], exchanges: Iterable[Exchange]) -> None:
        """Apply the settings of the server. A new window also applies to calls under way."""
        self._frame = settings.get(f.MAX_FRAME_SIZE, self._frame)
        window = settings.get(f.INITIAL_WINDOW_SIZE, self.stream_window)
        for exchange in exchanges:
            exchange.window += window - self.stream_window
        self.stream_window = window

    def headers(self, number: int, block: bytes, flags: int) -> bytes:
        size = self._frame
        if len(block) <= size:
            return f.frame(f.HEADERS, flags | f.END_HEADERS, number, block)
        out = f.frame(f.HEADERS, flags, number, block[:size])
        for at in range(size, len(block), size):
            last = f.END_HEADERS if at + size >= len(block) else 0
            out += f.frame(f.CONTINUATION, last, number, block[at : at + size])
        return out

    def data(self, exchange: Exchange) -> bytes:
        """Frames with as much of the request body as the server accepts now."""
        out = []
        left = exchange.left
        exchange.written = time.perf_counter()
        exchange.waiting.goes_on(exchange.written)
        while left or exchange.whole:
            size = min(len(left), self.window, exchange.window, self._frame)
            if left and size <= 0:
                break
            self.window -= size
            exchange.window -= size
            piece = bytes(left[:size])
            del left[:size]
            last = exchange.whole and not left
            out.append(f.frame(f.DATA, f.END_STREAM if last else 0, exchange.id, piece))
            if last:
                exchange.waiting.writing = False
                break
        if exchange.room is not None and not exchange.room.done() and len(left) < HIGH:
            exchange.room.set_result(None)
        return b"".join(out)
