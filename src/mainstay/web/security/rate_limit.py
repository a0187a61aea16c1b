"""How often somebody may ask: a bucket for each, which fills steadily and holds a burst."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from typing import Any

from ...clock import Clock, SystemClock
from ..problems import Problem

#: callers that are remembered at most; whoever was seen least lately is forgotten first, and starts afresh
_MOST = 10_000


class RateBuckets:
    """One for each key.

    >>> from mainstay.testing import VirtualClock
    >>> buckets = RateBuckets(2.0, burst=1, clock=VirtualClock())
    >>> buckets.take("ann"), buckets.take("ann"), buckets.take("ben")
    (0.0, 0.5, 0.0)
    """

    def __init__(self, rate: float, *, burst: float, clock: Clock | None = None) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock or SystemClock()
        self._left: dict[str, tuple[float, int]] = {}
        """key -> what was left, and when; the one seen least lately first"""

    def take(self, key: str) -> float:
        """Take one. Zero if there was one; else the seconds until there will be, and nothing is taken.

        A rate of zero is no limit.
        """
        if self._rate <= 0:
            return 0.0
        now_ms = self._clock.lease_ms()
        left, then_ms = self._left.pop(key, (self._burst, now_ms))
        left = min(self._burst, left + (now_ms - then_ms) * self._rate / 1000)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._rate
        self._left[key] = (left - 1 if left >= 1 else left, now_ms)
        if len(self._left) > _MOST:
            del self._left[next(iter(self._left))]
        return wait_s

    def check(self, key: str, *, what: str = "requests") -> None:
        """Take one, or refuse, saying when to come back."""
        wait_s = self.take(key)
        if wait_s > 0:
            after = str(max(1, math.ceil(wait_s)))
            detail = f"too many {what}; try again in {after} s"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": after})


def address_of(scope: Mapping[str, Any]) -> str:
    """Whom an anonymous request counts for: its address; of IPv6 the network, of which everybody has plenty.

    >>> address_of({"client": ("192.0.2.7", 4711)}), address_of({"client": ("2001:db8::1", 1)}), address_of({})
    ('192.0.2.7', '2001:db8::/64', 'unknown')
    """
    client = scope.get("client")
    if not client:
        return "unknown"
    host = str(client[0])
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


__all__ = ["RateBuckets", "address_of"]
