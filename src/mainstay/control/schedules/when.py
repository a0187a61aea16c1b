"""When: the times of a schedule, how they are stored, and how the next one is computed.

Any object with `next(after)` is a `When`. Cron expressions and intervals are stored as data, so that every leader can
tick them. A custom object is only named in the store, and the leader needs the program that has it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol, runtime_checkable
from zoneinfo import ZoneInfo

import msgspec

from ...clock import MAX_MS
from ...errors import InvalidInput
from ..failure import shown
from .cron import Cron
from .every import Every

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
LAST = _EPOCH + MAX_MS * _MS


@runtime_checkable
class When(Protocol):
    """The times of a schedule. Pure: the same result for the same argument, on every machine."""

    def next(self, after: datetime) -> datetime | None:
        """The first tick strictly after this time; both aware and in UTC. None: never again."""
        ...


class StoredWhen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `When` as data."""

    kind: Literal["cron", "every", "custom"]
    text: str
    """the cron expression; for other kinds only a description"""
    tz: str = "UTC"
    every_ms: int = 0
    anchor_ms: int = 0

    @classmethod
    def of(cls, when: When) -> StoredWhen:
        match when:
            case Cron():
                return cls(kind="cron", text=when.text, tz=when.tz)
            case Every():
                return cls(kind="every", text=when.text, every_ms=when.every_ms, anchor_ms=when.anchor_ms)
            case _:
                own = getattr(when, "text", None)
                return cls(kind="custom", text=f"custom ({own if isinstance(own, str) else type(when).__name__})")

    def same_times(self, other: StoredWhen) -> bool:
        """Whether both tick at the same times, as far as the store can tell."""
        return self == other or (self.kind == other.kind == "custom")

    def revived(self, custom: When | None = None) -> When | None:
        """The object it was made from; None for a custom one that this program does not have."""
        match self.kind:
            case "cron":
                return Cron(self.text, tz=self.tz)
            case "every":
                return Every(timedelta(milliseconds=self.every_ms), _EPOCH + self.anchor_ms * _MS)
            case "custom":
                return custom


def when_of(given: str | timedelta | When, *, tz: str | ZoneInfo | None = None) -> When:
    """Read what users write: a cron expression, an interval, or an object with `next(after)`.

    >>> when_of("*/5 * * * *", tz="Europe/Berlin"), when_of("15m").text
    (Cron('*/5 * * * *', tz='Europe/Berlin'), 'every 15m')
    """
    if isinstance(given, str) and (" " in given.strip() or given.strip().startswith("@")):
        return Cron(given, tz="UTC" if tz is None else tz)
    if tz is not None:
        raise InvalidInput("tz", "only a cron expression has a time zone; an interval counts from its anchor")
    if isinstance(given, str | timedelta):
        return Every(given)
    if isinstance(given, type) or not isinstance(given, When):
        rule = f"{shown(given)} has no next(after); write '*/5 * * * *', '15m', or pass an object that has it"
        raise InvalidInput("when", rule)
    return given


def next_tick(when: When, after: datetime) -> datetime | None:
    """The next tick, checked: a `When` that returns the same time again would tick without end.

    Ticks are whole milliseconds; a finer time is rounded up.
    """
    given: Any = when.next(after)
    if given is None:
        return None
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise InvalidInput("when", f"next({after.isoformat()}) returned {shown(given)}, not an aware datetime")
    if given > LAST:
        return None
    at = tick_time(-((_EPOCH - given) // _MS))
    if at <= after:
        raise InvalidInput("when", f"next({after.isoformat()}) returned {given.isoformat()}, which is not later")
    return at


def tick_time(at_ms: int) -> datetime:
    """A stored time as an aware datetime."""
    return _EPOCH + at_ms * _MS


def tick_ms(at: datetime) -> int:
    """A tick as it is stored."""
    return (at - _EPOCH) // _MS
