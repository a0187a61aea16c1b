"""Leadership and schedules: small tables beside the jobs."""

from __future__ import annotations

import msgspec

from ...model import Leadership, Schedule
from ..bounds import LONGEST_LEAD_MS, TICKS_KEPT_MS
from ..change_check import not_leader
from ..port import Violation
from ..violations import bad_lead


class LeadershipTable:
    """The leaderships, each with its holder and epoch."""

    def __init__(self, current: dict[str, Leadership]) -> None:
        self._current = current

    def lead(self, name: str, session: str, ttl_s: float, lease_ms: int) -> Leadership:
        current = self._current.get(name)
        # a lead that ends later than its holder can have requested is taken over: there would be no leader until then
        latest_ms = lease_ms + 2 * round(ttl_s * 1000)
        if current is not None and current.holder != session and lease_ms < current.until_ms <= latest_ms:
            return current
        epoch = 1 if current is None else current.epoch + (current.holder != session)
        lead = Leadership(name=name, holder=session, epoch=epoch, until_ms=lease_ms + round(ttl_s * 1000))
        self._current[name] = lead
        return lead

    def resign(self, lead: Leadership) -> None:
        current = self._current.get(lead.name)
        if current is not None and (current.holder, current.epoch) == (lead.holder, lead.epoch):
            # the epoch stays on record: the next leader's must be higher
            self._current[lead.name] = msgspec.structs.replace(current, holder="", until_ms=0)

    def current(self, name: str) -> Leadership | None:
        return self._current.get(name)

    def leading(self, name: str, lease_ms: int) -> str | None:
        """The session that leads at this moment."""
        current = self.held(lease_ms).get(name)
        return None if current is None else current.holder

    def held(self, lease_ms: int) -> dict[str, Leadership]:
        """The leaderships that are held at this moment, by name."""
        latest_ms = lease_ms + LONGEST_LEAD_MS
        return {
            name: lead
            for name, lead in sorted(self._current.items())
            if lead.holder and lease_ms < lead.until_ms <= latest_ms
        }

    def check(self, lease_ms: int, *, repair: bool) -> list[Violation]:
        """Leads that end too far in the future."""
        bad = [lead for lead in self._current.values() if lead.until_ms > lease_ms + LONGEST_LEAD_MS]
        if repair:
            for lead in bad:
                self.resign(lead)
        return [bad_lead(lead.name, lead.holder, lead.until_ms, repaired=repair) for lead in bad]

    def holders(self) -> list[str]:
        """The sessions that hold a leadership."""
        return list(dict.fromkeys(lead.holder for lead in self._current.values() if lead.holder))

    def depose(self, session: str) -> None:
        """End every leadership of a dead session."""
        for lead in list(self._current.values()):
            if lead.holder == session:
                self.resign(lead)

    def fence(self, lead: Leadership | None, lease_ms: int) -> None:
        """Refuse a leader whose epoch or whose time is over."""
        if lead is None:
            return
        current = self._current.get(lead.name)
        if current is not None and current.until_ms <= lease_ms:
            current = msgspec.structs.replace(current, holder="")
        if current is None or (current.holder, current.epoch) != (lead.holder, lead.epoch):
            raise not_leader(lead, current)


class ScheduleTable:
    """Schedules, and the ticks that have submitted their jobs."""

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
        # older ticks were removed: then the last one decides
        forgotten = known is not None and at_ms < (known.last_tick_ms or 0) - TICKS_KEPT_MS
        return forgotten or (name, at_ms) in self._ticks

    def forget_ticks(self) -> None:
        """Remove ticks that are too old for `ticked` to need them."""
        for name, at_ms in list(self._ticks):
            known = self._all.get(name)
            if known is not None and at_ms < (known.last_tick_ms or 0) - TICKS_KEPT_MS:
                del self._ticks[name, at_ms]

    def tick(self, name: str, at_ms: int) -> None:
        self._ticks[name, at_ms] = None
        if (schedule := self._all.get(name)) is not None:
            last = max(at_ms, schedule.last_tick_ms or 0)
            self._all[name] = msgspec.structs.replace(schedule, last_tick_ms=last)
