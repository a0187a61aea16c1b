"""Token buckets: a wait that is exact, and a memory that is bounded."""

from __future__ import annotations

import pytest

from mainstay.token_bucket import TokenBuckets


def test_the_wait_is_exact_also_far_from_the_beginning_of_time() -> None:
    buckets = TokenBuckets(3.0, burst=2)
    now_s = 1_700_000_000.0
    assert [buckets.take("ann", now_s) for _ in range(2)] == [0.0, 0.0]
    for _ in range(100):
        wait_s = buckets.take("ann", now_s)
        assert wait_s == pytest.approx(1 / 3, abs=1e-5)
        now_s += wait_s
        assert buckets.take("ann", now_s) == 0.0


def test_one_caller_empties_its_own_bucket_only() -> None:
    buckets = TokenBuckets(1.0, burst=5)
    assert sum(buckets.take("greedy", 0.0) == 0 for _ in range(100)) == 5
    assert [buckets.take(f"other{number}", 0.0) for number in range(10)] == [0.0] * 10


def test_a_bucket_holds_no_more_than_its_burst_and_a_clock_that_goes_back_takes_nothing_away() -> None:
    buckets = TokenBuckets(1.0, burst=2)
    assert sum(buckets.take("ann", 1000.0) == 0 for _ in range(10)) == 2
    assert sum(buckets.take("ann", 9000.0) == 0 for _ in range(10)) == 2
    assert buckets.take("ann", 5000.0) == pytest.approx(1.0)


def test_only_some_keys_are_remembered_and_those_that_ask_stay() -> None:
    buckets = TokenBuckets(1.0, burst=1, most=3)
    buckets.take("ann", 0.0)
    for stranger in range(10):
        buckets.take(f"s{stranger}", 0.0)
        assert buckets.take("ann", 0.0) > 0
    assert len(buckets) == 3
