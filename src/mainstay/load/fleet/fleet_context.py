"""What the leader of a fleet and its slices share: settings, the record, how the run is ending, and news of changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ...bus import Bus
from ...clock import Clock
from ..engine.messages import GiveUp, StopRun
from ..generator_process import Limits
from ..run_spec import RunOrder
from .assignments import SliceAssignments
from .messages import KillSlice
from .record import FleetRecord, GoEnd, GoRecord
from .record_size import make_room
from .settings import FleetSettings
from .slice_merger import SliceMerger
from .spec import OnLoss
from .together import TOGETHER


class FleetContext:
    """One run, as its leader knows it."""

    def __init__(
        self,
        *,
        bus: Bus,
        job: str,
        epoch: int,
        assignments: SliceAssignments,
        record: FleetRecord,
        save: Callable[[FleetRecord], Awaitable[None]],
        on_loss: OnLoss,
        limits: Limits,
        settings: FleetSettings,
        clock: Clock,
        steady: Callable[[], float],
        merger: SliceMerger,
    ) -> None:
        self.bus = bus
        self.job = job
        self.epoch = epoch
        self.assignments = assignments
        self.record = record
        self.on_loss = on_loss
        self.limits = limits
        self.settings = settings
        self.clock = clock
        self.steady = steady
        self.merger = merger
        self.order: RunOrder
        self.is_stopping = False
        """the run was stopped, and maybe given up: no load begins any more"""
        self.is_killed = False
        self.ending: StopRun | GiveUp | KillSlice | None = None
        """the last order that ends the load"""
        self.together: Callable[[], int] = lambda: TOGETHER
        """how many buckets slices put into one message"""
        self.failure: BaseException | None = None
        """why this leader cannot lead any more: a successor does"""
        self._save = save
        self._saving = asyncio.Lock()
        self._changed = asyncio.Event()

    def is_ending(self) -> bool:
        """Whether no load begins any more."""
        return self.is_stopping or self.failure is not None

    def change(self) -> None:
        """Something has changed that others may wait for."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, holds: Callable[[], object], *, within_s: float | None = None) -> None:
        """Wait until something holds that `change` tells, up to a time limit. Raises once this leader cannot lead."""
        until_s = None if within_s is None else self.steady() + within_s
        while not holds():
            self.check()
            left_s = None if until_s is None else until_s - self.steady()
            if left_s is not None and left_s <= 0:
                return
            waiting = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait([waiting], timeout=left_s)
            finally:
                waiting.cancel()
        self.check()

    async def until_failed(self) -> None:
        """Wait until this leader cannot lead any more."""
        while self.failure is None:
            await self._changed.wait()

    def check(self) -> None:
        """Raise if this leader cannot lead any more."""
        if self.failure is not None:
            raise self.failure

    async def save(self) -> None:
        """Store the record. A leader that cannot, leads no more: what it does next would be forgotten with it."""
        self.check()
        try:
            # one at a time, so that none overtakes a later one
            async with self._saving:
                make_room(self.record)
                await self._save(self.record)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)
            raise

    async def leads(self) -> bool:
        """Whether the store takes this leader for the last one."""
        if self.failure is None:
            with contextlib.suppress(Exception):
                async with self._saving:
                    await self._save(self.record)
                return True
        return False

    def fail(self, why: BaseException) -> None:
        """Lead no more, and leave the slices to a successor."""
        if self.failure is None:
            self.failure = why
            self.change()

    # the record -------------------------------------------------------------------------------------

    def go_record(self, number: int) -> GoRecord | None:
        return next((one for one in self.record.gos if one.go == number), None)

    def go_end(self, number: int) -> GoEnd | None:
        return next((one for one in self.record.ends if one.go == number), None)

    def put_go(self, go: GoRecord) -> None:
        """Record an order to go, in place of an earlier record of it."""
        self.record.gos = [*(one for one in self.record.gos if one.go != go.go), go]

    @property
    def running_go(self) -> GoRecord | None:
        """The one that a leader before this one may have ordered, and that is not over."""
        last = self.record.gos[-1] if self.record.gos else None
        return None if last is None or last.void or self.go_end(last.go) is not None else last


__all__ = ["FleetContext"]
