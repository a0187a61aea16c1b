"""Answers that leave when they are due, and not when the loop has come to the end of its round."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def at_once(transport: Any) -> Callable[[bytes], None]:
    """The `write` of a transport, but at once if nothing is waiting before it.

    uvloop collects what is written and sends it when everything that is ready has had its turn: an answer that is due
    would wait for those that are due with it. With TLS, that is how it stays.
    """
    later: Callable[[bytes], None] = transport.write
    if os.name != "posix" or transport.get_extra_info("ssl_object") is not None:
        return later
    fd = transport.get_extra_info("socket").fileno()
    closing, waiting = transport.is_closing, transport.get_write_buffer_size

    def write(data: bytes) -> None:
        # of what is closing the number may be another's already
        if closing() or waiting():
            later(data)
            return
        try:
            sent = os.write(fd, data)
        except OSError:
            # full, or broken: the transport knows what to do about either
            sent = 0
        if sent < len(data):
            later(data[sent:])

    return write
