"""Rate limits: one token bucket for each caller, which fills steadily and holds a burst."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from typing import Any

from ...clock import Clock, SystemClock
from ...token_bucket import TokenBuckets
from ..problems import Problem


class RateBuckets:
    """One bucket for each key, by the clock of the server. A rate of zero means no limit.

    >>> from mainstay.testing import VirtualClock
    >>> buckets = RateBuckets(2.0, burst=1, clock=VirtualClock())
    >>> buckets.take("ann"), buckets.take("ann"), buckets.take("ben")
    (0.0, 0.5, 0.0)
    """

    def __init__(self, rate: float, *, burst: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._buckets = TokenBuckets(rate, burst=burst)

    def take(self, key: str) -> float:
        """Take one request from a bucket; 0. If the bucket is empty, take nothing; the seconds until it has one."""
        return self._buckets.take(key, self._clock.lease_ms() / 1000)

    def check(self, key: str, *, what: str = "requests") -> None:
        """Take one request, or raise a `Problem` that says when to try again."""
        wait_s = self.take(key)
        if wait_s > 0:
            after = str(max(1, math.ceil(wait_s)))
            detail = f"too many {what}; try again in {after} s"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": after})


def address_of(scope: Mapping[str, Any]) -> str:
    """The address that an anonymous request counts for; for IPv6 its network, since one client has many addresses.

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
