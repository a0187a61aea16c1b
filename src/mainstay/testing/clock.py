"""A clock that a test advances."""

from __future__ import annotations


class VirtualClock:
    """Wall time and lease time in one, advanced by hand.

    >>> clock = VirtualClock()
    >>> before = clock.now_ms()
    >>> clock.advance(8)
    >>> clock.now_ms() - before
    8000
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = now_ms
        self._lease_ms = now_ms

    def now_ms(self) -> int:
        return self._wall_ms

    def lease_ms(self) -> int:
        return self._lease_ms

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._wall_ms += round(seconds * 1000)
        self._lease_ms += round(seconds * 1000)

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, as an administrator would; leases do not notice."""
        self._wall_ms = now_ms
