"""Writes responses when they are due, not at the end of the round of the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any


class PausingProtocol(asyncio.Protocol):
    """Reads no requests while the client does not read its responses."""

    _transport: Any

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()


def at_once(transport: Any) -> Callable[[bytes], None]:
    """A `write` for a transport that writes at once, if its buffer is empty.

    uvloop collects writes and sends them at the end of a round: a due response would wait for the others of that round.
    With TLS, this is not changed.
    """
    later: Callable[[bytes], None] = transport.write
    if os.name != "posix" or transport.get_extra_info("ssl_object") is not None:
        return later
    fd = transport.get_extra_info("socket").fileno()
    closing, waiting = transport.is_closing, transport.get_write_buffer_size

    def write(data: bytes) -> None:
        # the descriptor of a closing transport may be reused already
        if closing() or waiting():
            later(data)
            return
        try:
            sent = os.write(fd, data)
        except OSError:
            # full, or broken: the transport handles both
            sent = 0
        if sent < len(data):
            later(data[sent:])

    return write
