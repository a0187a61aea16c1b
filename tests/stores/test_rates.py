"""Rates from counts per minute."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from mainstay.model import first_id_at
from mainstay.stores.rates import LEAST_MS, first_rate_minute, per_minute


@given(
    began_ms=st.integers(0, 10**12),
    apart_ms=st.integers(50, 5_000),
    after_ms=st.integers(LEAST_MS, 1_000_000),
)
def test_a_steady_rate_reads_as_that_rate_at_any_moment(began_ms: int, apart_ms: int, after_ms: int) -> None:
    now_ms = began_ms + after_ms
    at = range(began_ms, now_ms, apart_ms)
    minutes = Counter(ms // 60_000 for ms in at)
    counted = sum(n for minute, n in minutes.items() if minute >= first_rate_minute(now_ms))

    rate = per_minute({"done": counted}, now_ms=now_ms, first_counted=min(minutes), oldest_job=first_id_at(began_ms))

    window_ms = min(after_ms, now_ms - first_rate_minute(now_ms) * 60_000)
    one_job = 60_000 / window_ms
    assert abs(rate["done"] - 60_000 / apart_ms) <= one_job * 1.001


def test_when_the_first_jobs_are_gone_the_count_began_with_its_first_minute() -> None:
    rate = per_minute({"done": 60}, now_ms=90_000 + 10**9 * 60_000, first_counted=10**9, oldest_job=None)
    assert rate == {"done": 40.0}


def test_a_damaged_id_does_not_stop_the_statistics() -> None:
    rate = per_minute({"done": 60}, now_ms=120_000 + 10**9 * 60_000, first_counted=10**9, oldest_job="\x00 bad")
    assert rate == {"done": 30.0}


def test_nothing_counted_is_no_rate() -> None:
    assert per_minute({}, now_ms=10**12, first_counted=None, oldest_job=None) == {}
