"""How a batch stands from moment to moment, how fast it is, and how long it may still take."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import msgspec

from ...cli.observation import Pace, is_settled
from ...clock import duration_text
from ...errors import WaitTimeout
from ...stores import Query
from .. import Desk, Status
from ..spec import DRIVER, row_name

#: the rate is that of the last so many seconds
_WINDOW_S = 30.0
#: units at work that are named
_NAMED = 5


class BatchStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """A batch at one moment."""

    now_ms: int
    status: Status
    at_work: tuple[str, ...] = ()
    """some of the units that are being run"""
    rate: float | None = None
    """units a second, lately; None: not known yet"""
    left_s: float | None = None
    """until the last unit, at this rate"""

    @property
    def settled(self) -> bool:
        return is_settled(self.status.job)


class Rate:
    """Counts a second, over a window that moves along.

    >>> rate = Rate(10)
    >>> [rate.at(second, second * 3) for second in (0, 1, 2)]
    [None, 3.0, 3.0]
    """

    def __init__(self, window_s: float = _WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now_s: float, count: int) -> float | None:
        """The rate as of now; None while nothing was counted."""
        if self._seen and count < self._seen[-1][1]:
            self._seen.clear()  # another group, or another round
        self._seen.append((now_s, count))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= self._window_s:
            self._seen.popleft()
        first_s, first = self._seen[0]
        return (count - first) / (now_s - first_s) if now_s > first_s and count > first else None


async def watched(desk: Desk, job_id: str, pace: Pace) -> AsyncIterator[BatchStatusView]:
    """Look at a batch until it is settled. Its end is noticed at once, everything else at the next look."""
    store, loop = desk.control.store, asyncio.get_running_loop()
    ends = None if pace.for_s is None else loop.time() + pace.for_s
    rate = Rate()
    async with store.wake([f"job:{job_id}"]) as wake:
        while True:
            seen = await look(desk, job_id, rate, loop.time())
            yield seen
            if seen.settled:
                return
            left = pace.every_s if ends is None else min(pace.every_s, ends - loop.time())
            if left <= 0:
                waited = duration_text(pace.for_s or 0)
                raise WaitTimeout(f"job {job_id} is still {seen.status.job.status} after {waited}; it goes on")
            await wake.wait(left)


async def look(desk: Desk, job_id: str, rate: Rate, now_s: float) -> BatchStatusView:
    """One look."""
    status = await desk.status(job_id)
    seen = BatchStatusView(now_ms=desk.control.store.clock.now_ms(), status=status)
    if seen.settled:
        return seen
    units = status.units if status.group == "units" else status.aggregations.get(status.group, status.units)
    over = units.succeeded + units.skipped + units.failed + units.cancelled
    speed = rate.at(now_s, over) if status.planned else None
    return msgspec.structs.replace(
        seen,
        at_work=await _at_work(desk, status) if units.running else (),
        rate=speed,
        left_s=None if not speed else max(0, units.made - over) / speed,
    )


async def _at_work(desk: Desk, status: Status) -> tuple[str, ...]:
    driver = row_name(status.spec.study, DRIVER)
    query = Query(parent=status.job.id, status=("running",), oldest_first=True)
    page = await desk.control.store.find(query, limit=_NAMED + 1)
    return tuple(row.unit or row.name for row in page.jobs if row.name != driver)[:_NAMED]
