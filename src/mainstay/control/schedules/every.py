"""Every: times on a fixed grid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...clock import duration_text, instant_ms, seconds
from ...errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST_S = 1.0


class Every:
    """A fixed interval, counted from an anchor (1970 by default) in both directions: ticks do not drift, and are the
    same in every process. The shortest interval is a second.

    >>> from datetime import datetime, UTC
    >>> Every("15m").next(datetime(2026, 7, 1, 12, 7, tzinfo=UTC)).isoformat()
    '2026-07-01T12:15:00+00:00'
    >>> Every("1d", anchor=datetime(2026, 1, 1, 6, tzinfo=UTC)).next(datetime(2026, 7, 1, tzinfo=UTC)).isoformat()
    '2026-07-01T06:00:00+00:00'
    """

    __slots__ = ("anchor_ms", "every_ms")

    def __init__(self, interval: str | timedelta, anchor: datetime | None = None) -> None:
        interval_s = seconds(interval, field="every")
        if interval_s < _SHORTEST_S:
            raise InvalidInput("every", f"{interval!r} is too short; the shortest interval is a second")
        self.every_ms = round(interval_s * 1000)
        self.anchor_ms = 0 if anchor is None else instant_ms(anchor, field="anchor")

    @property
    def text(self) -> str:
        """A short text; very odd intervals are rounded."""
        interval = f"every {duration_text(self.every_ms / 1000)}"
        return f"{interval} from {self.anchor.isoformat()}" if self.anchor_ms else interval

    @property
    def anchor(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self.anchor_ms)

    def next(self, after: datetime) -> datetime:
        """The first point of the grid after this time."""
        step = timedelta(milliseconds=self.every_ms)
        return self.anchor + ((after.astimezone(UTC) - self.anchor) // step + 1) * step

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Every) and (self.every_ms, self.anchor_ms) == (other.every_ms, other.anchor_ms)

    def __hash__(self) -> int:
        return hash((self.every_ms, self.anchor_ms))

    def __repr__(self) -> str:
        return f"<Every: {self.text}>"
