"""The measured part of a client's response."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..errors import InvalidInput


class Opening(NamedTuple):
    """Seconds that a call spent on its connection before it could send. A call on an open connection has none."""

    blocked: float
    """waiting for a free connection"""
    connect: float
    tls: float
    dns: float = 0.0
    """looking up the host; not part of the others"""


class Result:
    """A measured result that a step returns. Every client's response is one.

    Times are seconds of `time.perf_counter`. Only the time from `started` to `ended` belongs to the call.
    """

    __slots__ = ("ended", "failure", "first", "opening", "received", "sent", "started", "status", "written")

    def __init__(
        self,
        *,
        started: float,
        ended: float,
        written: float = 0.0,
        first: float = 0.0,
        opening: Opening | None = None,
        status: int | str = "",
        failure: str = "",
        sent: int = 0,
        received: int = 0,
    ) -> None:
        self.started = started
        """when the call was made"""
        self.written = written or started
        """when its last byte was passed to the system"""
        self.first = first or ended
        """when the first byte of the response arrived"""
        self.ended = ended
        """when the response was complete"""
        self.opening = opening
        self.status: Any = status
        """the status from the other side: 200, for example"""
        self.failure = failure
        """why it counts as failed; empty if it does not"""
        self.sent = sent
        """bytes"""
        self.received = received
        """bytes"""

    @property
    def elapsed(self) -> float:
        """Seconds from the call to the end of its response."""
        return self.ended - self.started

    @property
    def ok(self) -> bool:
        return not self.failure


class CustomResult(Result):
    """A result of the user's own: a step that returns one is measured like a response.

    >>> done = CustomResult(started=1.0, ended=1.5, status="stored")
    >>> done.elapsed, done.ok
    (0.5, True)
    """

    __slots__ = ()

    def __init__(self, *, started: float, ended: float, **more: Any) -> None:
        super().__init__(started=started, ended=ended, **more)
        times = self.started, self.written, self.first, self.ended
        if not all(isinstance(one, (int, float)) and math.isfinite(one) for one in times):
            raise InvalidInput("result", f"its times are {times}; give seconds of time.perf_counter()")
        if not self.started <= self.written <= self.first <= self.ended:
            raise InvalidInput("result", f"its times {times} are not in order; a result ends after it starts")
