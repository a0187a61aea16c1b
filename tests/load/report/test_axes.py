"""Axes: every value has a place, and ticks are few and round."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from mainstay.load.report.axes import ChartAxis, axis_over
from mainstay.load.report.charts import axis_text, bins_of, percentile_line, spread_axis

times = st.floats(min_value=1e-7, max_value=1e5)


@settings(max_examples=40)
@given(st.lists(times, min_size=1, max_size=20), st.sampled_from([None, True, False]))
def test_an_axis_has_room_for_all_values_and_few_short_names(values: list[float], log: bool | None) -> None:
    axis = axis_over(values, log=log)

    assert axis is not None
    assert axis.low <= min(values) * 1.0001
    assert max(values) <= axis.high * 1.0001
    assert all(0 <= axis.place(value) <= 1 for value in values)
    ticks = axis.ticks(6)
    assert 1 <= len(ticks) <= 7
    assert ticks == sorted(set(ticks))
    assert all(len(axis_text(tick)) <= 8 for tick in ticks)


@settings(max_examples=40)
@given(st.floats(min_value=0.1, max_value=1e7))
def test_a_time_axis_has_few_ticks_from_its_start(length: float) -> None:
    ticks = ChartAxis(0.0, length).times()

    assert 2 <= len(ticks) <= 7
    assert ticks[0] == 0
    assert ticks[-1] <= length * 1.0001


@settings(max_examples=40)
@given(st.lists(st.tuples(times, st.integers(min_value=1, max_value=1000)), min_size=1, max_size=30))
def test_wider_bins_hold_as_many_as_the_buckets_did(found: list[tuple[float, int]]) -> None:
    buckets = [(value, value * 1.0078, n) for value, n in sorted(found)]
    axis = spread_axis(buckets)
    assert axis is not None

    bars = bins_of(buckets, axis)

    total = sum(n for _, n in found)
    assert abs(sum(bar.value for bar in bars) - total) < total * 1e-6


def test_the_line_of_percentiles_has_the_value_that_a_part_stays_below() -> None:
    line = percentile_line([(1.0, 1.0, 90), (2.0, 2.0, 9), (5.0, 5.0, 1)], name="", look="")

    # by 1 / (1 - q): up to the 90th it is 1, up to the 99th it is 2, then 5
    assert [(round(x, 6), y) for x, y in line.values] == [
        (1, 1), (10, 1), (10, 2), (100, 2), (100, 5), (100, 5), (100, 5),
    ]  # fmt: skip
