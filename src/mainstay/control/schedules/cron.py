"""Cron: times by the clock of a time zone.

`cronsim` reads the expression and finds the local times that match. What a local time means on the days when the clocks
change is decided here: the rules of `cronsim` miss half-hour changes, and depend on the start of the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ...errors import InvalidInput
from ..failure import shown
from .zones import clock_change, instant, local, offset, zone_of

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day_of_month": "1-31, L for the last day, LW for the last weekday",
    "month": "1-12 or JAN-DEC",
    "day_of_week": "0-7 (0 and 7 are Sunday) or SUN-SAT, 5L for the last Friday, MON#1 for the first Monday",
}
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - local times have no zone here
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class Cron:
    """Five fields, as in crontab: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly,
    @monthly, @yearly. The time zone is an IANA name, UTC by default.

    >>> from datetime import datetime, UTC
    >>> daily = Cron("30 2 * * *", tz="Europe/Berlin")
    >>> daily.next(datetime(2026, 7, 1, tzinfo=UTC)).isoformat()
    '2026-07-01T00:30:00+00:00'
    >>> Cron("61 2 * * *")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: cron.minute: '61' is not a minute; write 0-59, also as lists, ranges and steps ...
    """

    __slots__ = ("_by_the_clock", "_expression", "_zone", "text")

    def __init__(self, text: str, *, tz: str | ZoneInfo = "UTC") -> None:
        if not isinstance(text, str):
            raise InvalidInput("cron", f"{shown(text)} is not a cron expression; write five fields, like '*/5 * * * *'")
        self.text = " ".join(text.split())
        self._zone = zone_of(tz)
        self._expression = _ALIASES.get(self.text.lower(), self.text)
        fields = _checked(self._expression)
        # as in Debian's cron: a star at the start of the minute or the hour means every match of the clock
        self._by_the_clock = fields[0].startswith("*") or fields[1].startswith("*")

    @property
    def tz(self) -> str:
        return self._zone.key

    def next(self, after: datetime) -> datetime | None:
        """The first time after this one, in UTC; None if there is none within fifty years."""
        after = after.astimezone(UTC)
        return self._round_the_clock(after) if self._by_the_clock else self._at_fixed_times(after)

    def _at_fixed_times(self, after: datetime) -> datetime | None:
        for match in self._matches(local(after, self._zone)):
            # in the second of two equal hours the matches of the first come again
            if (found := instant(match, self._zone)) > after:
                return found
        return None

    def _round_the_clock(self, start: datetime) -> datetime | None:
        """Every instant at which the clocks show a match: none in a gap, two where the clocks go back.

        It goes from one change of the clocks to the next, because between them local time is UTC plus an offset. A
        change matters only within a day of either end: there it can repeat or remove a match.
        """
        zone, first = self._zone, local(start, self._zone)
        while True:
            ahead = offset(start, zone)
            match = next(self._matches(first), None)
            if match is None:
                return None
            found = (match - ahead).replace(tzinfo=UTC)
            end = min(found, start + _DAY)
            if (change := clock_change(zone, start, end)) is not None:
                start, first = change, local(change, zone) - _SECOND
            elif end == found:
                return found
            else:
                # clocks were never put forward by more than a day, so the match is still ahead
                start = max(found - 2 * _DAY, end)
                first = local(start, zone)

    def _matches(self, after: datetime) -> Iterator[datetime]:
        return CronSim(self._expression, after)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cron) and (self.text, self.tz) == (other.text, other.tz)

    def __hash__(self) -> int:
        return hash((self.text, self.tz))

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, tz={self.tz!r})"


def _checked(expression: str) -> list[str]:
    """The five fields; refuses an invalid expression with its field."""
    fields = expression.split()
    if expression.startswith("@"):
        raise InvalidInput("cron", f"{expression!r} is not known; write {', '.join(_ALIASES)}, or five fields")
    if len(fields) != len(_FIELDS):
        rule = f"{expression!r} has {len(fields)} fields and needs five: minute, hour, day of month, month, day of week"
        raise InvalidInput("cron", f"{rule}; for every few seconds use an interval, like '10s'")
    try:
        CronSim(expression, _ANY_DAY)
    except CronSimError:
        raise _refusal(fields) from None
    return fields


def _refusal(fields: list[str]) -> InvalidInput:
    """The error with the wrong part of the field; the library names only the field."""
    for index, (name, values) in enumerate(_FIELDS.items()):
        for part in fields[index].split(","):
            alone: list[Any] = ["*"] * len(_FIELDS)
            alone[index] = part
            try:
                CronSim(" ".join(alone), _ANY_DAY)
            except CronSimError:
                rule = f"{part!r} is not a {name.replace('_', ' ')}; write {values}"
                return InvalidInput(f"cron.{name}", f"{rule}, also as lists, ranges and steps (1,2 1-5 */5)")
    return InvalidInput("cron.day_of_month", f"no month of {fields[3]!r} has a day {fields[2]}: it would never tick")
