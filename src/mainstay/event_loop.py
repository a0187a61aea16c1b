"""The event loop of programs that do nothing but wait for sockets: the fastest that is installed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop, or of asyncio where that is not installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def steady_clock() -> Callable[[], float]:
    """A steady clock for what is measured in the running loop. That of asyncio, which a simulation replaces; uvloop
    knows only milliseconds, and reads its clock once in each turn."""
    loop = asyncio.get_running_loop()
    return time.monotonic if type(loop).__module__.startswith("uvloop") else loop.time


__all__ = ["new_event_loop", "steady_clock"]
