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


_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def boot_time() -> float:
    """Seconds of a clock that also runs while the machine is suspended, if it has one. It is never adjusted, and the
    same in all processes of the machine."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


def steady_clock() -> Callable[[], float]:
    """A steady clock for what is measured in the running loop: `boot_time`, or that of a simulation."""
    loop = asyncio.get_running_loop()
    is_simulated = type(loop).__module__.partition(".")[0] not in ("asyncio", "uvloop")
    return loop.time if is_simulated else boot_time


__all__ = ["boot_time", "new_event_loop", "steady_clock"]
