"""Delays that are drawn follow the distribution whose quantiles are told."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.target import DelayDistribution

ALL = [
    "none",
    "20ms",
    "uniform 10ms 30ms",
    "normal 20ms 5ms",
    "lognormal 20ms 0.5",
    "exponential 20ms",
    "bimodal 20ms 1.5s 10%",
    "bimodal 1.5s 20ms 10%",
    "trace p0=1ms p50=20ms p99=80ms p100=1s",
]


@pytest.mark.parametrize("text", ALL)
def test_drawn_delays_have_the_told_quantiles(text: str) -> None:
    latency = DelayDistribution(text)
    rng = random.Random(1)
    drawn = sorted(latency.draw(rng) for _ in range(20_000))
    for share in (0.25, 0.5, 0.75, 0.95):
        assert drawn[int(share * len(drawn))] == pytest.approx(latency.quantile(share), rel=0.05, abs=1e-4)


@pytest.mark.parametrize("text", ALL)
@given(one=st.floats(0, 1), other=st.floats(0, 1))
def test_a_quantile_is_never_negative_and_never_falls(text: str, one: float, other: float) -> None:
    quantile = DelayDistribution(text).quantile
    assert 0 <= quantile(min(one, other)) <= quantile(max(one, other))


def test_the_same_seed_draws_the_same_delays() -> None:
    latency = DelayDistribution("lognormal 20ms 0.5")
    one, other = random.Random(7), random.Random(7)
    assert [latency.draw(one) for _ in range(5)] == [latency.draw(other) for _ in range(5)]


def test_a_trace_goes_in_straight_lines_between_its_percentiles() -> None:
    quantile = DelayDistribution("trace p50=20ms p100=120ms").quantile
    assert [quantile(0.1), quantile(0.5), quantile(0.75), quantile(1.0)] == pytest.approx([0.02, 0.02, 0.07, 0.12])


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "20",
        "uniform 10ms",
        "uniform 30ms 10ms",
        "lognormal 20ms wide",
        "lognormal 20ms -1",
        "bimodal 20ms 1.5s 200%",
        "trace p50=20ms",
        "trace p90=20ms p50=30ms",
        "trace p50=30ms p90=20ms",
        "trace p50=20ms p200=30ms",
        "none 5ms",
    ],
)
def test_what_is_no_latency_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(InvalidInput, match="^delay: "):
        DelayDistribution(text, field="delay")
