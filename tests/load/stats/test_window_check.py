"""Windows that cannot be true are named; those that pass can be merged, counted and stored."""

from __future__ import annotations

import math
from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from mainstay.load.stats.grammar import parse
from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import Health, MetricStats, Sketch, StepStats, Window
from mainstay.load.stats.tally import RunTally, merge_windows, to_json
from mainstay.load.stats.thresholds import ThresholdJudge
from mainstay.load.stats.window_check import window_fault
from tests.load.stats.made import header, windows

GOOD = Sketch(at=[130688, 131200], n=[2, 1], count=3, total=4.5, squares=16.125, low=0.25, high=4.0)


def sketch(**changes: Any) -> Window:
    return Window(
        bucket=7, steps=[StepStats(workflow="Shop", step="browse", ok=msgspec.structs.replace(GOOD, **changes))]
    )


UNTRUE = {
    "a count below zero": (Window(bucket=7, iterations=-1), "iterations is -1"),
    "a count that no machine makes": (Window(bucket=7, users=1 << 60), f"users is {1 << 60}"),
    "no bucket": (Window(bucket=-1), "bucket is -1"),
    "no width": (Window(bucket=7, width=0), "width is 0"),
    "fewer counts than buckets": (sketch(n=[3]), "step Shop.browse: it has 2 buckets and 1 counts"),
    "an empty sketch": (sketch(at=[], n=[]), "step Shop.browse: it has 0 buckets and 0 counts"),
    "buckets of other values": (
        sketch(at=[0, 1 << 40]),
        "step Shop.browse: its buckets are not those of its lowest and highest value",
    ),
    "counts that do not add up": (sketch(count=4), "step Shop.browse: its counts do not add up to 4"),
    "a count of nothing": (sketch(n=[3, 0]), "step Shop.browse: its counts do not add up to 3"),
    "values that are not finite": (sketch(high=math.inf), "step Shop.browse: its values are from 0.25 to inf"),
    "values that are no numbers": (sketch(low=math.nan), "step Shop.browse: its values are from nan to 4.0"),
    "a sum that is no number": (sketch(total=math.nan), "step Shop.browse: its sums are nan and 16.125"),
    "buckets that do not rise": (
        sketch(at=[130688, 131200, 131200], n=[1, 1, 1]),
        "step Shop.browse: its buckets do not rise",
    ),
    "a phase without a name": (
        Window(bucket=7, steps=[StepStats(workflow="Shop", step="browse", phases={"x": GOOD})]),
        "step Shop.browse: it has unknown phases: x",
    ),
    "an error that happened less than never": (
        Window(bucket=7, steps=[StepStats(workflow="Shop", step="browse", errors={"timeout": -2})]),
        "step Shop.browse: timeout is -2",
    ),
    "a metric that is no number": (
        Window(bucket=7, metrics=[MetricStats(name="cart", type="gauge", total=math.nan)]),
        "metric cart: it has a value that is not finite",
    ),
    "health that is no number": (
        Window(bucket=7, health={3: Health(cpu=math.nan)}),
        "health of process 3: it has a value that is not finite",
    ),
}


@pytest.mark.parametrize("what", UNTRUE)
def test_a_window_that_cannot_be_true_is_named(what: str) -> None:
    window, fault = UNTRUE[what]

    assert window_fault(window) == fault


@given(windows(0, 7))
@settings(max_examples=50, deadline=None)
def test_what_a_generator_measures_is_believed(window: Window) -> None:
    assert window_fault(window) == ""
    assert window_fault(merge_windows([window, window])) == ""


@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=60))
@settings(max_examples=50, deadline=None)
def test_a_sketch_of_any_values_is_believed(values: list[float]) -> None:
    window = Window(bucket=1, steps=[StepStats(workflow="Shop", step="browse", ok=sketch_of(array("d", values)))])

    assert window_fault(window) == ""


NUMBERS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats() | st.floats(0, 1)
SKETCHES = st.builds(
    Sketch,
    at=st.lists(NUMBERS, max_size=3),
    n=st.lists(NUMBERS, max_size=3),
    count=NUMBERS,
    total=FLOATS,
    squares=FLOATS,
    low=FLOATS,
    high=FLOATS,
) | st.just(GOOD)
STEPS = st.builds(
    StepStats,
    workflow=st.just("Shop"),
    step=st.sampled_from(["browse", "pay"]),
    ok=SKETCHES,
    failed=st.none() | SKETCHES,
    errors=st.dictionaries(st.text(max_size=3), NUMBERS, max_size=2),
    skipped=st.integers(0, 2**50),
)


@given(
    st.lists(
        st.builds(
            Window,
            bucket=st.just(7),
            iterations=st.integers(0, 2**50),
            users=NUMBERS,
            steps=st.lists(STEPS, max_size=2),
        ),
        max_size=3,
    )
)
@settings(max_examples=100, deadline=None)
def test_any_windows_that_are_believed_can_be_counted_and_stored(found: list[Window]) -> None:
    believed = [window for window in found if not window_fault(window)]
    tally, judge = RunTally(header()), ThresholdJudge([parse("p95 of browse < 1s")])

    for window in (Window(bucket=6), *believed):
        tally.add(window)
        judge.add(window)

    assert to_json(tally.summary(verdict="passed"))
    assert msgspec.msgpack.encode(merge_windows([Window(bucket=6), *believed]))
