"""Time zones: from a local time to the instant it means, and where a zone's clocks are changed.

`zoneinfo` does not list the changes, so they are looked for: between two instants with different offsets from UTC lies
one. No zone changes its clocks twice within a day, and nobody here looks further at once.
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
    mainstay.errors.InvalidInput: tz: 'Berlin' is not a time zone known here; write an IANA name, like 'Europe/Berlin'
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
        # an unknown name, one with odd characters, no text at all, the name of a folder
        rule = f"{tz!r} is not a time zone known here; write an IANA name, like 'Europe/Berlin'"
        raise InvalidInput("tz", rule) from None


def local(at: datetime, zone: ZoneInfo) -> datetime:
    """What the clocks of the zone show, without the zone."""
    return at.astimezone(zone).replace(tzinfo=None)


def offset(at: datetime, zone: ZoneInfo) -> timedelta:
    """How far the clocks of the zone are ahead of UTC."""
    found = at.astimezone(zone).utcoffset()
    assert found is not None
    return found


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
    """The instant at which the clocks show this. The first of two; where there is none, the end of the gap."""
    first = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if local(first, zone) == shown:
        return first
    # within a gap the first reading goes by the offset before it and ends behind it, the second the other way round
    before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    change = clock_change(zone, before, first)
    assert change is not None
    return change
