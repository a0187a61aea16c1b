"""Token buckets: a rate limit for each key. A bucket fills steadily, and holds a burst. The caller tells the time."""

from __future__ import annotations

#: of a token: times are rounded, and a caller that waited as long as it was told gets one
_ROUNDING = 1e-6


class TokenBuckets:
    """One bucket for each key. A rate of zero means no limit.

    >>> buckets = TokenBuckets(2.0, burst=1)
    >>> buckets.take("ann", 10.0), buckets.take("ann", 10.0), buckets.take("ben", 10.0), buckets.take("ann", 10.5)
    (0.0, 0.5, 0.0, 0.0)
    """

    def __init__(self, rate: float, *, burst: float, most: int = 10_000) -> None:
        """`rate` is in tokens a second. Of more than `most` keys, the one that was used least recently is forgotten."""
        self._rate = rate
        self._burst = burst
        self._most = most
        self._left: dict[str, tuple[float, float]] = {}
        """key -> (tokens left, time); the least recently used first"""

    def __len__(self) -> int:
        return len(self._left)

    def take(self, key: str, now_s: float) -> float:
        """Take one token, and return 0. From an empty bucket take nothing, and return the seconds until it has one."""
        if self._rate <= 0:
            return 0.0
        left, then_s = self._left.pop(key, (self._burst, now_s))
        left = min(self._burst, left + max(0.0, now_s - then_s) * self._rate)
        has_one = left >= 1 - _ROUNDING
        wait_s = 0.0 if has_one else (1 - left) / self._rate
        self._left[key] = (max(0.0, left - 1) if has_one else left, now_s)
        if len(self._left) > self._most:
            del self._left[next(iter(self._left))]
        return wait_s


__all__ = ["TokenBuckets"]
