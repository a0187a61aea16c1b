"""Histograms: how far a percentile may be from the truth, and that merging loses nothing."""

from __future__ import annotations

import math
import random
import sys
from array import array

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.stats.histogram import LARGEST, Histogram, bounds_of, merged, number_of, sketch_of
from mainstay.load.stats.model import Sketch

#: floats of full precision, and zero; on both sides of the size at which numpy takes over
values = st.lists(
    st.floats(-LARGEST, LARGEST).filter(lambda value: value == 0 or abs(value) >= sys.float_info.min), max_size=120
)
some = values.filter(bool)


def of(numbers: list[float]) -> Histogram:
    made = Histogram()
    made.add(array("d", numbers))
    return made


def state(histogram: Histogram) -> tuple[object, ...]:
    """All of it that does not depend on the order in which floats are summed."""
    return histogram.buckets(), histogram.count, histogram.low, histogram.high


@given(some, st.floats(0.0, 1.0))
def test_a_percentile_is_within_four_thousandths_of_the_value_of_that_rank(numbers: list[float], q: float) -> None:
    rank = max(1, math.ceil(round(q * len(numbers), 6)))
    exact = sorted(numbers)[rank - 1]
    found = of(numbers).percentile(q)
    assert found is not None
    assert abs(found - exact) <= 0.004 * abs(exact)


@given(some)
def test_count_sum_least_and_largest_are_exact(numbers: list[float]) -> None:
    made = of(numbers)
    assert (made.count, made.low, made.high) == (len(numbers), min(numbers), max(numbers))
    assert made.total == pytest.approx(math.fsum(numbers), rel=1e-9, abs=1e-9 * max(map(abs, numbers)) * len(numbers))
    assert (made.percentile(0.0), made.percentile(1.0)) == (made.low, made.high)


@given(some)
def test_few_values_and_many_are_counted_alike(numbers: list[float]) -> None:
    few = Histogram()
    for number in numbers:
        few.add(array("d", [number]))
    at_once = Histogram()
    at_once.add(np.array(numbers))
    assert state(few) == state(at_once) == state(of(numbers))


@given(values, values, values)
def test_merging_is_associative_and_commutative(a: list[float], b: list[float], c: list[float]) -> None:
    left, right, whole = of(a), of(b), of(a + b + c)
    left.merge(of(b))
    left.merge(of(c))
    right.merge(of(c))
    right.merge(of(a))
    assert state(left) == state(right) == state(whole)


@given(values)
def test_a_sketch_brings_everything_back(numbers: list[float]) -> None:
    made = of(numbers)
    sketch = made.sketch()
    back = Histogram([sketch] if sketch else [])
    assert (state(back), back.total, back.squares) == (state(made), made.total, made.squares)
    assert back.sketch() == sketch


@given(st.floats(sys.float_info.min, LARGEST), st.booleans())
def test_a_bucket_holds_its_values_and_is_narrow(value: float, negative: bool) -> None:
    value = -value if negative else value
    near, far = bounds_of(number_of(value))
    assert near <= value <= far
    assert far - near <= 0.0079 * abs(value)


@given(st.floats(-LARGEST, LARGEST), st.floats(-LARGEST, LARGEST))
def test_buckets_are_in_the_order_of_their_values(a: float, b: float) -> None:
    if a <= b:
        assert number_of(a) <= number_of(b)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
@pytest.mark.parametrize("beside", [0, 200])
def test_a_value_that_cannot_be_counted_is_refused_with_all_beside_it(bad: float, beside: int) -> None:
    made = of([1.0])
    with pytest.raises(InvalidInput, match="cannot be counted; a value must be finite"):
        made.add(array("d", [*[2.0] * beside, bad, 3.0]))
    assert state(made) == state(of([1.0]))


def test_zero_of_either_sign_has_a_bucket_of_its_own() -> None:
    for beside in (0, 100):
        made = of([0.0, -0.0, *[1.0] * beside])
        assert made.buckets()[0] == (0.0, 0.0, 2)


def test_values_from_a_slice_with_gaps_are_counted_right() -> None:
    every_other = np.arange(1.0, 201.0)[::2]
    made = Histogram()
    made.add(every_other)
    assert state(made) == state(of(every_other.tolist()))


def test_nothing_counted_has_no_numbers() -> None:
    empty = Histogram()
    empty.add(array("d"))
    assert (empty.percentile(0.5), empty.latency(), empty.sketch(), empty.buckets(), empty.mean, empty.stdev) == (
        *[None] * 3,
        [],
        None,
        None,
    )
    assert sketch_of(np.array([])) is None
    assert merged([None, None]) is None


def test_the_numbers_of_a_distribution_are_those_of_its_values() -> None:
    numbers = np.random.default_rng(7).lognormal(-4, 1, 20_000)
    found = of(numbers.tolist()).latency()
    assert found is not None
    exact = np.sort(numbers)
    for q, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99), (0.999, found.p999)):
        assert value == pytest.approx(exact[math.ceil(q * len(exact)) - 1], rel=0.004)
    assert found.mean == pytest.approx(numbers.mean())
    assert found.stdev == pytest.approx(numbers.std())


def test_an_outlier_far_off_costs_no_memory() -> None:
    sketch = sketch_of(np.array([1e-300, *[0.1] * 100, 1e140]))
    assert isinstance(sketch, Sketch)
    assert sketch.n == [1, 100, 1]


def test_many_sketches_have_the_same_sum_as_one_after_the_other() -> None:
    chance = random.Random(4)
    sketches = [
        sketch_of(array("d", [chance.choice([-1, 1]) * chance.lognormvariate(-6, 1) for _ in range(300)]))
        for _ in range(9)
    ]
    narrow = [sketch_of(array("d", [chance.lognormvariate(-6, 1) for _ in range(300)])) for _ in range(9)]

    for each in (sketches, narrow):
        several, single = merged(each), Histogram(sketch for sketch in each if sketch is not None).sketch()
        assert several is not None
        assert single is not None
        assert (several.at, several.n, several.count) == (single.at, single.n, single.count)
        assert (several.total, several.low, several.high) == (pytest.approx(single.total), single.low, single.high)
