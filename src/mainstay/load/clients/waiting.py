"""Calls that wait for their answer, and the limits that end them.

No call has a timer: one sweep over all that wait looks after them, twenty times a second. A timer for each would cost
more than the rest of a small call does.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ...errors import CallFailed
from ..prepared import Data
from .network import Network, Timeouts

SWEEP_S = 0.05
_now = time.perf_counter


class Waiting:
    """One call. Whoever reads for it sets `last` when more has come, and in the end the future's result."""

    __slots__ = ("future", "last", "limits", "started", "what", "writing")

    def __init__(self, *, started: float, limits: Timeouts, what: str) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.started = started
        self.limits = limits
        self.what = what
        """what is called, for messages"""
        self.last = _now()
        self.writing = False
        """the request has not been handed over yet"""

    def check(self, now: float) -> None:
        limits = self.limits
        if limits.total is not None and now - self.started > limits.total:
            self.fail(too_long("total", limits.total, self.what))
        elif self.writing:
            if limits.write is not None and now - self.last > limits.write:
                self.fail(too_long("write", limits.write, self.what))
        elif limits.read is not None and now - self.last > limits.read:
            self.fail(too_long("read", limits.read, self.what))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def settle(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)


class Watch:
    """Looks after all calls of a process that wait. `network.keep(Watch)`."""

    def __init__(self, _network: Network) -> None:
        self._waiting: set[Waiting] = set()
        self._sweeping = False

    async def answer(self, waiting: Waiting) -> Any:
        """What its future comes to, or what ended it."""
        self.add(waiting)
        try:
            return await waiting.future
        finally:
            self._waiting.discard(waiting)

    def add(self, waiting: Waiting) -> None:
        self._waiting.add(waiting)
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def discard(self, waiting: Waiting) -> None:
        self._waiting.discard(waiting)

    def _sweep(self) -> None:
        now = _now()
        for waiting in tuple(self._waiting):
            waiting.check(now)
        if self._waiting:
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        else:
            self._sweeping = False


def too_long(part: str, limit: float, what: str) -> CallFailed:
    """
    >>> str(too_long("read", 5.0, "tcp://127.0.0.1:9000"))
    'tcp://127.0.0.1:9000: nothing (more) was answered within 5 s'
    """
    words = {
        "connect": "there was no connection",
        "total": "the call was not over",
        "write": "the request could not be sent on",
        "read": "nothing (more) was answered",
    }[part]
    return CallFailed(f"{part} timeout", f"{what}: {words} within {limit:g} s")


def bytes_of(data: Any) -> bytes:
    """Bytes and text as they are, anything else as JSON."""
    if isinstance(data, bytes):
        return data
    return data.body if isinstance(data, Data) else Data(data).body
