"""The progress of a batch: its status from moment to moment, its rate, and the time left."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import msgspec

from ...cli.observation import Pace, is_settled
from ...clock import duration_text
from ...errors import WaitTimeout
from ...stores import Query
from .. import BatchService, BatchStatus
from ..spec import DRIVER, row_name

#: the rate is measured over this time
_WINDOW_S = 30.0
#: running units to name
_NAMED = 5


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a batch at one moment."""

    now_ms: int
    status: BatchStatus
    at_work: tuple[str, ...] = ()
    """names of some running units"""
    rate: float | None = None
    """recent units per second; None: not known yet"""
    left_s: float | None = None
    """time until the last unit ends, at this rate"""

    @property
    def settled(self) -> bool:
        return is_settled(self.status.job)


class UnitRate:
    """Units per second over a moving window.

    >>> rate = UnitRate(10)
    >>> [rate.at(second, second * 3) for second in (0, 1, 2)]
    [None, 3.0, 3.0]
    """

    def __init__(self, window_s: float = _WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque()

    def at(self, now_s: float, count: int) -> float | None:
        """The current rate; None if nothing was counted in the window."""
        if self._samples and count < self._samples[-1][1]:
            self._samples.clear()  # another group, or another round
        self._samples.append((now_s, count))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= self._window_s:
            self._samples.popleft()
        first_s, first = self._samples[0]
        return (count - first) / (now_s - first_s) if now_s > first_s and count > first else None


async def watched(service: BatchService, job_id: str, pace: Pace) -> AsyncIterator[BatchProgress]:
    """The progress of a batch until it is settled. Its end is noticed at once, other changes at the next look."""
    store, loop = service.control.store, asyncio.get_running_loop()
    ends = None if pace.for_s is None else loop.time() + pace.for_s
    rate = UnitRate()
    async with store.wake([f"job:{job_id}"]) as wake:
        while True:
            progress = await look(service, job_id, rate)
            yield progress
            if progress.settled:
                return
            left = pace.every_s if ends is None else min(pace.every_s, ends - loop.time())
            if left <= 0:
                waited = duration_text(pace.for_s or 0)
                raise WaitTimeout(f"job {job_id} is still {progress.status.job.status} after {waited}; it continues")
            await wake.wait(left)


async def look(service: BatchService, job_id: str, rate: UnitRate | None = None) -> BatchProgress:
    """The progress of a batch now. Without a `rate` that has seen earlier counts, its rate is not known."""
    status = await service.status(job_id)
    progress = BatchProgress(now_ms=service.control.store.clock.now_ms(), status=status)
    if progress.settled:
        return progress
    units = status.units if status.group == "units" else status.aggregations.get(status.group, status.units)
    over = units.succeeded + units.skipped + units.failed + units.cancelled
    speed = rate.at(asyncio.get_running_loop().time(), over) if rate and status.planned else None
    return msgspec.structs.replace(
        progress,
        at_work=await _at_work(service, status) if units.running else (),
        rate=speed,
        left_s=None if not speed else max(0, units.made - over) / speed,
    )


async def _at_work(service: BatchService, status: BatchStatus) -> tuple[str, ...]:
    driver = row_name(status.spec.study, DRIVER)
    query = Query(parent=status.job.id, status=("running",), oldest_first=True)
    page = await service.control.store.find(query, limit=_NAMED + 1)
    return tuple(row.unit or row.name for row in page.jobs if row.name != driver)[:_NAMED]
