"""Pending calls, and the time limits that end them.

A timer for each call would cost more than the rest of a small call. So a connection has one, for the first moment at
which a limit may have passed. Successive calls share it: most are over long before it fires, and then it is set for the
current one. A response after its limit is discarded, even if the timer has not fired yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from ...errors import CallFailed
from ..prepared import Data
from .network import Timeouts

_now = time.perf_counter
Phase = Literal["write", "read"]


class DeadlineTimer:
    """The timer of one connection."""

    __slots__ = ("_timer", "due")

    def __init__(self) -> None:
        self.due = math.inf
        """no limit passes before"""
        self._timer: asyncio.TimerHandle | None = None

    def set(self, due: float, look: Callable[[], None]) -> None:
        """Call `look` at this time, instead of the time that was set before."""
        self.stop()
        if due < math.inf:
            self.due = due
            # timers of uvloop count whole milliseconds, and may be one early: `look` sets it again then
            delay = math.ceil((due - _now()) * 1000) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, look)

    def stop(self) -> None:
        self.due = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PendingCall:
    """One call. Its connection reports progress, and finally the response."""

    __slots__ = ("due", "future", "last", "limits", "started", "what", "writing")

    def __init__(self, *, started: float, limits: Timeouts, what: str) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.started = started
        self.limits = limits
        self.what = what
        """the call in words, for messages"""
        self.last = _now()
        self.writing = False
        """the request is not completely written yet"""
        self.due = started + limits.shortest
        """no limit passes before"""

    def goes_on(self, now: float) -> bool:
        """Bytes were sent or received. False: the call is over, because of a limit for example."""
        if now >= self.due:
            self.check(now)
        self.last = now
        return not self.future.done()

    def check(self, now: float) -> None:
        phase: Phase = "write" if self.writing else "read"
        if too_late := passed(self.limits, now, self.started, self.last, phase, self.what):
            self.fail(too_late)
        else:
            self.due = next_due(self.limits, now, self.started, self.last, phase)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def settle(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)


class TimeoutWatch:
    """Enforces the limits of the pending calls of one connection."""

    __slots__ = ("_alarm", "_waiting")

    def __init__(self) -> None:
        self._waiting: set[PendingCall] = set()
        self._alarm = DeadlineTimer()

    async def answer(self, waiting: PendingCall) -> Any:
        """Wait for the response; raises the error that ended the call."""
        self.add(waiting)
        try:
            return await waiting.future
        finally:
            self._waiting.discard(waiting)

    def add(self, waiting: PendingCall) -> None:
        self._waiting.add(waiting)
        if waiting.due < self._alarm.due:
            self._alarm.set(waiting.due, self._look)

    def discard(self, waiting: PendingCall) -> None:
        self._waiting.discard(waiting)

    def stop(self) -> None:
        """The connection is closed, and no call waits."""
        self._alarm.stop()

    def _look(self) -> None:
        now = _now()
        for waiting in self._waiting:
            if now >= waiting.due:
                waiting.check(now)
        left = (waiting.due for waiting in self._waiting if not waiting.future.done())
        self._alarm.set(min(left, default=math.inf), self._look)


def passed(
    limits: Timeouts, now: float, started: float, last: float, phase: Phase | None, what: str
) -> CallFailed | None:
    """The error of the limit that has passed, if any, for a call in this phase since `last`. Without a phase, only the
    total limit counts."""
    if limits.total is not None and now >= started + limits.total:
        return too_long("total", limits.total, what)
    limit = None if phase is None else getattr(limits, phase)
    if phase is not None and limit is not None and now >= last + limit:
        return too_long(phase, limit, what)
    return None


def next_due(limits: Timeouts, now: float, started: float, last: float, phase: Phase | None) -> float:
    """The first moment at which a limit may have passed, also if another phase begins before."""
    limit = None if phase is None else getattr(limits, phase)
    return min(
        math.inf if limits.total is None else started + limits.total,
        math.inf if limit is None else last + limit,
        now + limits.shortest,
    )


def time_left(limits: Timeouts, started: float) -> float | None:
    """Seconds until the total limit of the call."""
    return None if limits.total is None else max(limits.total - (_now() - started), 0.0)


@contextlib.asynccontextmanager
async def in_time(limits: Timeouts, started: float, what: str) -> AsyncIterator[None]:
    """Apply the total limit of a call to the work before it is sent."""
    try:
        async with asyncio.timeout(time_left(limits, started)):
            yield
    except TimeoutError:
        raise too_long("total", limits.total or 0.0, what) from None


def too_long(part: str, limit: float, what: str) -> CallFailed:
    """
    >>> str(too_long("read", 5.0, "tcp://127.0.0.1:9000"))
    'tcp://127.0.0.1:9000: no data arrived within 5 s'
    """
    words = {
        "connect": "no connection was opened",
        "total": "the call was not complete",
        "write": "no data could be sent",
        "read": "no data arrived",
    }[part]
    return CallFailed(f"{part} timeout", f"{what}: {words} within {limit:g} s")


def bytes_of(data: Any) -> bytes:
    """Bytes and text unchanged, other values as JSON."""
    if isinstance(data, bytes):
        return data
    return data.body if isinstance(data, Data) else Data(data).body
