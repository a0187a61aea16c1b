"""Time: the clocks of the system, and durations as users write them.

There are two clocks. *Wall time* says when a job is due; users and time zones refer to it. *Lease time* says how long a
session has been silent; it must not jump when the wall clock is set, and must agree between the processes of one
machine.

>>> seconds("1h30m", field="timeout")
5400.0
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import Protocol

from .errors import InvalidInput

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: Times beyond this (the year 3000) are refused as mistakes.
MAX_MS = 32_503_680_000_000
#: So are durations beyond this (a hundred years); now plus a duration is then before the year 3000.
LONGEST_S = 36_500 * 86_400.0


class Clock(Protocol):
    """The source of all times. Tests pass a virtual one."""

    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970 UTC."""
        ...

    def lease_ms(self) -> int:
        """Steady time for leases; the same for all processes of this machine."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def lease_ms(self) -> int:
        return time.clock_gettime_ns(_STEADY) // 1_000_000


def seconds(value: str | timedelta, *, field: str) -> float:
    """Turn "30s", "1h30m", "500ms" or a `timedelta` into seconds.

    A number without a unit is refused.

    >>> seconds("500ms", field="timeout")
    0.5
    >>> seconds("5", field="timeout")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: timeout: '5' is not a duration; write it with a unit, like '30s', '5m' or '1h30m'
    """
    if isinstance(value, timedelta):
        total = value.total_seconds()
    else:
        text = value.strip().lower() if isinstance(value, str) else ""
        if not text or _PART.sub("", text):
            rule = f"{value!r} is not a duration; write it with a unit, like '30s', '5m' or '1h30m'"
            raise InvalidInput(field, rule)
        total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if not 0 <= total <= LONGEST_S:
        raise InvalidInput(field, f"{value!r} is out of range; a duration is from zero to {duration_text(LONGEST_S)}")
    return total


def duration_text(value_s: float) -> str:
    """A duration as short text: its two largest units.

    >>> duration_text(5400), duration_text(0.25), duration_text(8), duration_text(604800)
    ('1h30m', '250ms', '8s', '7d')
    """
    if value_s == 0:
        return "0s"
    if value_s < 1:
        return f"{value_s * 1000:.0f}ms"
    return "".join(_parts(round(value_s * 1000) * 1000)[:2])


def exact_duration(value: timedelta) -> str:
    """A duration as data: text that `seconds` reads back without loss. `duration_text` rounds, for people.

    >>> exact_duration(timedelta(days=1, hours=2, minutes=3)), exact_duration(timedelta(milliseconds=1))
    ('1d2h3m', '0.001s')
    """
    return "".join(_parts(value // timedelta(microseconds=1))) or "0s"


def _parts(left_us: int) -> list[str]:
    """The number of each unit in a number of microseconds, from days to seconds."""
    parts = []
    for unit in ("d", "h", "m"):
        count, left_us = divmod(left_us, int(_UNITS[unit]) * 1_000_000)
        if count:
            parts.append(f"{count}{unit}")
    if left_us:
        parts.append(f"{left_us / 1_000_000:.6f}".rstrip("0").rstrip(".") + "s")
    return parts


def instant_ms(value: datetime, *, field: str) -> int:
    """Turn an aware datetime into milliseconds; a naive one is refused."""
    if not isinstance(value, datetime):
        raise InvalidInput(field, f"{value!r} is not a datetime; pass an aware one, like datetime.now(UTC)")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidInput(field, "the datetime has no time zone; pass an aware one, like datetime.now(UTC)")
    at = round(value.timestamp() * 1000)
    if not 0 <= at <= MAX_MS:
        raise InvalidInput(field, f"{value.isoformat()} is out of range (1970 to 2999)")
    return at
