"""Which ticks are due: a pure function of the schedule, its last tick and the time.

A schedule that no worker ticked for long has missed many ticks. They are walked one by one up to a limit; beyond it the
newest ones are searched from the end, so a schedule of every minute costs no more after a year than after a day.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from ...errors import InvalidInput
from .spec import ScheduleSpec
from .when import When, next_tick

#: skipped ticks are counted up to here
COUNTED = 1000
_STEPS = 200


class TickPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks that are due."""

    ticks: tuple[datetime, ...] = ()
    """to be turned into jobs, oldest first"""
    skipped: int = 0
    """number of skipped ticks"""
    uncounted: bool = False
    """True: there are more than `skipped`"""
    passed: datetime | None = None
    """the newest skipped tick, if no newer one is due: to be stored, so that it is skipped only once"""
    next: datetime | None = None
    """the next tick; None: never"""

    @property
    def skipped_text(self) -> str:
        return f"more than {self.skipped}" if self.uncounted else str(self.skipped)


def due_ticks(
    spec: ScheduleSpec, when: When, last_tick: datetime, now: datetime, *, grace: timedelta = timedelta(0)
) -> TickPlan:
    """Plan the ticks in (last_tick, now].

    Ticks that are at most `grace` old are current and due whatever `catch_up` says: a change of the leader must not
    lose a tick. Older ones are missed. "skip" skips them; "once" makes up for the newest, unless there is a current
    one; "all" makes up for all of them. At most `catch_up_limit` ticks are due at a time, the newest.
    """
    most = spec.catch_up_limit
    walked, following = ticks_between(when, last_tick, now, COUNTED + most)
    if not walked:
        return TickPlan(next=following)
    uncounted = following is not None and following <= now
    if uncounted:
        newest = _newest(when, now, most, walked)
        following = next_tick(when, newest[-1])
    else:
        newest = walked[-most:]
    chosen = _chosen(spec, newest, now - grace)
    return TickPlan(
        ticks=tuple(chosen),
        skipped=COUNTED if uncounted else len(walked) - len(chosen),
        uncounted=uncounted,
        passed=None if chosen else newest[-1],
        next=following,
    )


def upcoming(when: When, after: datetime, n: int) -> list[datetime]:
    """The next n ticks."""
    found: list[datetime] = []
    while len(found) < n and (tick := next_tick(when, found[-1] if found else after)) is not None:
        found.append(tick)
    return found


def ticks_between(when: When, after: datetime, until: datetime, most: int) -> tuple[list[datetime], datetime | None]:
    """The ticks in (after, until], at most `most`, and the one that follows them."""
    found: list[datetime] = []
    following = next_tick(when, after)
    while following is not None and following <= until and len(found) < most:
        found.append(following)
        following = next_tick(when, following)
    return found, following


def _chosen(spec: ScheduleSpec, newest: list[datetime], current_from: datetime) -> list[datetime]:
    if spec.catch_up == "all":
        return newest
    current = [tick for tick in newest if tick >= current_from]
    return newest[-1:] if spec.catch_up == "once" and not current else current


def _newest(when: When, until: datetime, most: int, walked: list[datetime]) -> list[datetime]:
    """The newest ticks up to `until`, oldest first; `walked` are the oldest, and there are more."""
    after, step = walked[-1], (walked[-1] - walked[0]) / len(walked)
    found: list[datetime] = []
    # `until` itself may be a tick
    before = until + timedelta(milliseconds=1)
    while len(found) < most and (tick := _previous(when, before, after, step)) is not None:
        found.append(tick)
        step, before = before - tick, tick
    if len(found) < most:
        found += reversed(walked[-(most - len(found)) :])
    return found[::-1]


def _previous(when: When, before: datetime, after: datetime, step: timedelta) -> datetime | None:
    """The newest tick in (after, before): go back in growing steps until a tick is before it, then close in."""
    start = before
    while True:
        start = max(after, start - step)
        tick = next_tick(when, start)
        if tick is not None and tick < before:
            break
        if start == after:
            return None
        step *= 2
    end = before
    for _ in range(_STEPS):
        following = next_tick(when, tick)
        if following is None or following >= before:
            return tick
        middle = tick + (end - tick) / 2
        later = next_tick(when, middle)
        if later is None or later >= before:
            end, tick = middle, following
        else:
            tick = later
    raise InvalidInput("when", "next() is inconsistent: it must return the first time after its argument")
