"""Time zones: the instant of a local time, and the changes of a zone's clocks.

`zoneinfo` does not list the changes, so they are searched: there is one between two instants with different offsets
from UTC. No zone changes its clocks twice within a day, and no search here covers more.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from ...errors import InvalidInput

_SECOND = timedelta(seconds=1)


def zone_of(tz: Any) -> ZoneInfo:
    """The zone of an IANA name.

    >>> zone_of("Europe/Berlin").key
    'Europe/Berlin'
    >>> zone_of("Berlin")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: tz: 'Berlin' is not a known time zone; write an IANA name, like 'Europe/Berlin'
    """
    if isinstance(tz, ZoneInfo):
        if tz.key is None:
            raise InvalidInput("tz", "a zone without a name cannot be stored; write an IANA name, like 'Europe/Berlin'")
        return tz
    if tz is UTC:
        return ZoneInfo("UTC")
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        # an unknown name, odd characters, not a text, the name of a folder
        rule = f"{tz!r} is not a known time zone; write an IANA name, like 'Europe/Berlin'"
        raise InvalidInput("tz", rule) from None


def local(at: datetime, zone: ZoneInfo) -> datetime:
    """The local time of the zone, without the zone."""
    return at.astimezone(zone).replace(tzinfo=None)


def offset(at: datetime, zone: ZoneInfo) -> timedelta:
    """The offset of the zone from UTC."""
    ahead = at.astimezone(zone).utcoffset()
    assert ahead is not None
    return ahead


def clock_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The change of the clocks in (after, until], at most a day or so: the first instant with the new offset."""
    old = offset(after, zone)
    if offset(until, zone) == old:
        return None
    before, until = after.replace(microsecond=0), until.replace(microsecond=0)
    while until - before > _SECOND:
        middle = before + (until - before) // (2 * _SECOND) * _SECOND
        if offset(middle, zone) == old:
            before = middle
        else:
            until = middle
    return until


def instant(shown: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clocks show this: the first of two, or the end of the gap if there is none."""
    first = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if local(first, zone) == shown:
        return first
    # within a gap, fold=0 uses the offset before it and lands after it; fold=1 the other way round
    before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    change = clock_change(zone, before, first)
    assert change is not None
    return change
