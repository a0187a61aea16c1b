"""Rates: steady, with a burst, for each by itself."""

from __future__ import annotations

import pytest

from mainstay.testing import VirtualClock
from mainstay.web.problems import Problem
from mainstay.web.security.rate_limit import RateBuckets


def test_a_burst_is_let_through_and_then_the_rate_holds() -> None:
    clock = VirtualClock()
    buckets = RateBuckets(10.0, burst=5, clock=clock)

    assert [buckets.take("ann") for _ in range(5)] == [0.0] * 5
    assert buckets.take("ann") == pytest.approx(0.1)
    clock.advance(0.1)
    assert buckets.take("ann") == 0.0
    assert buckets.take("ann") > 0
    clock.advance(1000)
    assert sum(buckets.take("ann") == 0.0 for _ in range(10)) == 5


def test_who_goes_on_asking_is_not_kept_out_for_longer() -> None:
    clock = VirtualClock()
    buckets = RateBuckets(1.0, burst=1, clock=clock)
    buckets.take("ann")
    for _ in range(100):
        buckets.take("ann")
    clock.advance(1.0)

    assert buckets.take("ann") == 0.0


def test_a_rate_of_zero_is_no_limit() -> None:
    buckets = RateBuckets(0.0, burst=0)

    assert {buckets.take("ann") for _ in range(100)} == {0.0}


def test_the_refusal_says_when_to_come_back() -> None:
    buckets = RateBuckets(0.2, burst=1, clock=VirtualClock())
    buckets.check("ann")

    with pytest.raises(Problem) as caught:
        buckets.check("ann")

    assert caught.value.status == 429
    assert caught.value.headers == {"Retry-After": "5"}
