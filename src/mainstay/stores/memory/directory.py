"""Leadership and schedules: small tables beside the jobs."""

from __future__ import annotations

import msgspec

from ...errors import NotLeader
from ...model import Leadership, Schedule
from ..bounds import LONGEST_LEAD_MS, TICKS_KEPT_MS
from ..port import Violation
from ..violations import bad_lead


class LeadershipTable:
    """Who leads what, under which epoch."""

    def __init__(self, current: dict[str, Leadership]) -> None:
        self._current = current

    def lead(self, name: str, session: str, ttl_s: float, lease_ms: int) -> Leadership:
        current = self._current.get(name)
        # one that ends later than its holder can have asked for is not waited for: there would be no leader until then
        latest_ms = lease_ms + 2 * round(ttl_s * 1000)
        if current is not None and current.holder != session and lease_ms < current.until_ms <= latest_ms:
            return current
        epoch = 1 if current is None else current.epoch + (current.holder != session)
        taken = Leadership(name=name, holder=session, epoch=epoch, until_ms=lease_ms + round(ttl_s * 1000))
        self._current[name] = taken
        return taken

    def resign(self, lead: Leadership) -> None:
        current = self._current.get(lead.name)
        if current is not None and (current.holder, current.epoch) == (lead.holder, lead.epoch):
            # the epoch stays on record: the next leader's must be higher
            self._current[lead.name] = msgspec.structs.replace(current, holder="", until_ms=0)

    def holder(self, name: str) -> str:
        current = self._current.get(name)
        return "" if current is None else current.holder

    def current(self, name: str) -> Leadership | None:
        return self._current.get(name)

    def leading(self, name: str, lease_ms: int) -> str | None:
        """Who leads at this moment."""
        found = self._current.get(name)
        if found is None or not found.holder or not lease_ms < found.until_ms <= lease_ms + LONGEST_LEAD_MS:
            return None
        return found.holder

    def check(self, lease_ms: int, *, repair: bool) -> list[Violation]:
        """Leads that end too far ahead."""
        wrong = [lead for lead in self._current.values() if lead.until_ms > lease_ms + LONGEST_LEAD_MS]
        if repair:
            for lead in wrong:
                self.resign(lead)
        return [bad_lead(lead.name, lead.holder, lead.until_ms, repaired=repair) for lead in wrong]

    def holders(self) -> set[str]:
        """The sessions that lead anything."""
        return {lead.holder for lead in self._current.values() if lead.holder}

    def depose(self, session: str) -> None:
        """A session is dead: whatever it leads is free."""
        for lead in list(self._current.values()):
            if lead.holder == session:
                self.resign(lead)

    def fence(self, lead: Leadership | None) -> None:
        """Refuse a leader whose epoch is over."""
        if lead is None:
            return
        current = self._current.get(lead.name)
        if current is None or (current.holder, current.epoch) != (lead.holder, lead.epoch):
            raise NotLeader(
                f"session {lead.holder} led {lead.name!r} in epoch {lead.epoch}, which is over; "
                "nothing was written. Stop leading, and ask for leadership again"
            )


class ScheduleTable:
    """Schedules, and every tick that was turned into jobs."""

    def __init__(self, schedules: dict[str, Schedule], ticks: dict[tuple[str, int], None]) -> None:
        self._all = schedules
        self._ticks = ticks

    def put(self, schedule: Schedule) -> None:
        old = self._all.get(schedule.name)
        ticks = [s.last_tick_ms for s in (old, schedule) if s is not None and s.last_tick_ms is not None]
        paused = schedule.paused if old is None else old.paused
        self._all[schedule.name] = msgspec.structs.replace(
            schedule, paused=paused, last_tick_ms=max(ticks, default=None)
        )

    def pause(self, name: str, *, paused: bool) -> bool:
        if (schedule := self._all.get(name)) is None:
            return False
        self._all[name] = msgspec.structs.replace(schedule, paused=paused)
        return True

    def all(self) -> list[Schedule]:
        return [self._all[name] for name in sorted(self._all)]

    def drop(self, name: str) -> bool:
        for tick in [tick for tick in self._ticks if tick[0] == name]:
            del self._ticks[tick]
        return self._all.pop(name, None) is not None

    def ticked(self, name: str, at_ms: int) -> bool:
        known = self._all.get(name)
        # older ticks were forgotten: then the last one decides
        forgotten = known is not None and at_ms < (known.last_tick_ms or 0) - TICKS_KEPT_MS
        return forgotten or (name, at_ms) in self._ticks

    def forget_ticks(self) -> None:
        """Those so old that `ticked` needs them no more."""
        for name, at_ms in list(self._ticks):
            known = self._all.get(name)
            if known is not None and at_ms < (known.last_tick_ms or 0) - TICKS_KEPT_MS:
                del self._ticks[name, at_ms]

    def tick(self, name: str, at_ms: int) -> None:
        self._ticks[name, at_ms] = None
        if (schedule := self._all.get(name)) is not None:
            last = max(at_ms, schedule.last_tick_ms or 0)
            self._all[name] = msgspec.structs.replace(schedule, last_tick_ms=last)
