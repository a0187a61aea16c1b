"""When users and arrivals come: a pure function of time, so it is held to arithmetic."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from hypothesis import given, strategies as st

from mainstay.load.pace import Arrivals, Ramp, flat, ramped, shares, weighted

lengths = st.floats(0, 100, allow_nan=False).map(lambda value: round(value, 3))
levels = st.floats(0, 5000, allow_nan=False).map(lambda value: round(value, 2))
ramps = st.lists(st.tuples(lengths, levels), min_size=1, max_size=6).map(ramped).filter(lambda ramp: ramp.ends > 0)
small_ramps = (
    st.lists(st.tuples(st.floats(0.01, 3), st.floats(0, 20)), min_size=1, max_size=4)
    .map(ramped)
    .filter(lambda ramp: ramp.area(ramp.ends) > 0.01)
)


@given(ramps, st.floats(0, 1))
def test_the_time_at_which_an_area_is_reached_has_that_area(ramp: Ramp, part: float) -> None:
    area = ramp.area(ramp.ends) * part
    when = ramp.when(area)
    if area:
        assert 0 <= when <= ramp.ends
        assert ramp.area(when) == pytest.approx(area, rel=1e-6, abs=1e-6)


@given(ramps, st.floats(0, 1), st.floats(0, 1))
def test_the_area_never_falls_with_time(ramp: Ramp, one: float, other: float) -> None:
    early, late = sorted((one * ramp.ends, other * ramp.ends))

    assert ramp.area(early) <= ramp.area(late) + 1e-9


@given(ramps)
def test_more_than_the_whole_area_is_never_reached(ramp: Ramp) -> None:
    assert math.isinf(ramp.when(ramp.area(ramp.ends) * 1.001 + 1))


@given(ramps, st.floats(0, 1))
def test_a_level_lies_between_those_of_the_points(ramp: Ramp, part: float) -> None:
    assert 0 <= ramp.level(part * ramp.ends) <= ramp.highest + 1e-9


def test_nobody_is_there_after_the_end() -> None:
    assert flat(10, 5).level(5.001) == 0


def test_a_stage_of_no_time_is_a_step() -> None:
    ramp = ramped([(1, 10), (0, 50), (1, 50)])

    assert ramp.level(0.999) == pytest.approx(9.99)
    assert ramp.level(1.0) == 50
    assert ramp.area(2) == pytest.approx(5 + 50)


def test_arrivals_of_a_rate_that_begins_at_zero_wait_for_it() -> None:
    first, second = itertools.islice(Arrivals(Ramp(((0, 0), (10, 0), (20, 10)))).times(), 2)

    assert first == 10
    assert second == pytest.approx(10 + math.sqrt(2))


@given(small_ramps, st.integers(1, 7))
def test_processes_together_make_exactly_the_arrivals_of_one(ramp: Ramp, processes: int) -> None:
    alone = list(Arrivals(ramp).times())
    parts = [list(Arrivals(ramp, process=number, processes=processes).times()) for number in range(processes)]

    assert sorted(itertools.chain(*parts)) == alone
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(small_ramps)
def test_there_are_as_many_arrivals_as_the_rate_adds_up_to(ramp: Ramp) -> None:
    times = list(Arrivals(ramp).times())

    assert len(times) == math.ceil(ramp.area(ramp.ends) - 1e-9)
    assert times == sorted(times)
    assert all(0 <= time <= ramp.ends for time in times)


def test_a_constant_rate_is_even() -> None:
    times = list(Arrivals(flat(200, 2)).times())

    gaps = {round(late - early, 9) for early, late in itertools.pairwise(times)}
    assert (len(times), gaps) == (400, {0.005})


def test_no_arrival_is_due_at_the_very_end() -> None:
    assert list(Arrivals(flat(2, 1.0)).times()) == [0.0, 0.5]


@given(st.integers(0, 1000), st.integers(1, 4))
def test_random_arrivals_are_the_same_with_the_same_seed(seed: int, processes: int) -> None:
    def made() -> list[float]:
        return list(Arrivals(flat(50, 2), process=0, processes=processes, poisson=True, seed=seed).times())

    assert made() == made()


def test_random_arrivals_differ_between_processes_and_seeds() -> None:
    def made(process: int, seed: int) -> list[float]:
        return list(Arrivals(flat(50, 2), process=process, processes=2, poisson=True, seed=seed).times())

    assert len({tuple(made(0, 0)), tuple(made(1, 0)), tuple(made(0, 1))}) == 3


def test_random_arrivals_have_the_mean_and_the_spread_of_a_poisson_process() -> None:
    parts = [
        Arrivals(flat(1000, 40), process=process, processes=3, poisson=True, seed=5).times() for process in range(3)
    ]
    times = sorted(itertools.chain(*parts))

    gaps = [late - early for early, late in itertools.pairwise(times)]
    counts = [sum(1 for _ in group) for _, group in itertools.groupby(times, key=lambda time: int(time * 10))]
    assert len(times) == pytest.approx(40_000, rel=0.02)
    # exponential: the deviation is the mean; counts of equal stretches: the variance is the mean
    assert statistics.stdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.03)
    assert statistics.variance(counts) == pytest.approx(statistics.fmean(counts), rel=0.25)


@given(small_ramps, st.floats(0, 1), st.integers(1, 4), st.booleans())
def test_arrivals_from_a_time_on_are_those_of_the_whole_plan_that_are_due_then(
    ramp: Ramp, part: float, processes: int, poisson: bool
) -> None:
    since = ramp.ends * part
    for process in range(processes):
        arrivals = Arrivals(ramp, process=process, processes=processes, poisson=poisson, seed=7)

        assert list(arrivals.times(since=since)) == [due for due in arrivals.times() if due >= since]


def test_random_arrivals_of_a_long_plan_are_found_without_those_before() -> None:
    arrivals = Arrivals(flat(100, 300.0), process=1, processes=3, poisson=True)

    assert list(arrivals.times(since=200.0)) == [due for due in arrivals.times() if due >= 200.0]
    # a plan of a thousand years, continued a second before its end
    assert list(Arrivals(flat(1000, 3e10), poisson=True).times(since=3e10 - 1.0))


@pytest.mark.parametrize("poisson", [False, True])
def test_after_the_end_no_arrival_is_due(poisson: bool) -> None:
    assert list(Arrivals(flat(50, 2), poisson=poisson).times(since=2.5)) == []


@given(ramps, st.floats(0, 1))
def test_as_many_users_have_begun_as_are_present_or_more(ramp: Ramp, part: float) -> None:
    assert ramp.risen(part * ramp.ends) >= ramp.level(part * ramp.ends) - 1e-6


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_shares_are_all_of_it_and_differ_by_one_at_most(total: int, parts: int) -> None:
    found = shares(total, parts)

    assert sum(found) == total
    assert max(found) - min(found) <= 1


@given(st.integers(0, 10_000), st.lists(st.floats(0, 100).map(lambda value: round(value, 3)), min_size=1, max_size=8))
def test_a_split_by_weight_is_all_of_it_and_less_than_one_off(total: int, weights: list[float]) -> None:
    found = weighted(total, weights)

    if not sum(weights):
        assert not any(found)
        return
    assert sum(found) == total
    for given_out, weight in zip(found, weights, strict=True):
        assert abs(given_out - total * weight / sum(weights)) < 1 + 1e-6
