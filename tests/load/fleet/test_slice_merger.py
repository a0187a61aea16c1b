"""Windows of several slices become one, whatever the bus does to them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings, strategies as st

from mainstay.load.fleet.slice_merger import SliceMerger
from mainstay.load.stats.model import Window
from mainstay.load.stats.tally import merge_windows
from tests.load.stats.made import windows


class Merged:
    """What a merger passed on, with a clock that the test moves."""

    def __init__(self, slices: int) -> None:
        self.now_s = 0.0
        self.windows: list[Window] = []
        self.merger = SliceMerger(slices, self.windows.append, hold_s=0.25, now=lambda: self.now_s)
        self.merger.open(range(slices))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.merger.tick()

    @property
    def seen(self) -> list[tuple[int, int]]:
        return [(window.bucket, window.iterations) for window in self.windows]


def window(bucket: int, iterations: int, *, users: int = 1) -> Window:
    return Window(bucket=bucket, iterations=iterations, users=users)


def test_a_window_is_passed_on_when_all_slices_have_sent_it() -> None:
    merged = Merged(2)
    merged.merger.add(0, window(5, 1))
    merged.merger.add(1, window(5, 10))
    merged.merger.add(1, window(6, 10))
    assert merged.seen == [(5, 11)]
    assert merged.windows[0].users == 2

    merged.merger.add(0, window(6, 1))
    merged.merger.close(0)
    merged.merger.close(1)
    assert merged.seen == [(5, 11), (6, 11)]


def test_a_slice_that_sends_nothing_holds_the_others_up_for_a_moment_only() -> None:
    merged = Merged(2)
    merged.merger.add(0, window(5, 1))
    merged.wait(0.2)
    assert merged.seen == []

    merged.wait(0.1)
    assert merged.seen == [(5, 1)]


def test_a_late_part_is_counted_in_a_later_window_without_its_users() -> None:
    merged = Merged(2)
    merged.merger.add(0, window(5, 1))
    merged.wait(0.3)
    merged.merger.add(1, window(5, 10, users=7))
    merged.merger.add(0, window(6, 1))
    merged.merger.add(1, window(6, 10, users=2))
    merged.merger.add(0, window(7, 1))

    assert merged.seen == [(5, 1), (6, 21)]
    assert merged.windows[1].users == 3
    assert merged.merger.late == [0, 1]


def test_a_late_part_at_the_end_is_not_lost() -> None:
    merged = Merged(2)
    merged.merger.add(0, window(5, 1))
    merged.merger.close(0)
    merged.wait(0.3)
    merged.merger.add(1, window(5, 10))
    merged.merger.close(1)

    assert merged.seen == [(5, 1), (6, 10)]


def test_the_end_has_begun_for_all_later_windows() -> None:
    merged = Merged(2)
    merged.merger.add(0, Window(bucket=5, draining=True))
    merged.merger.close(0)
    for bucket in (5, 6):
        merged.merger.add(1, window(bucket, 1))
    merged.merger.close(1)

    assert [one.draining for one in merged.windows] == [True, True]


@st.composite
def _shuffled(draw: st.DrawFn) -> tuple[int, list[tuple[int, Window]]]:
    slices, length = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    parts = [(number, draw(windows(number, bucket))) for number in range(slices) for bucket in range(length)]
    return slices, draw(st.permutations(parts))


@settings(max_examples=20, deadline=None)
@given(_shuffled(), st.lists(st.sampled_from([0.0, 0.1, 0.3]), min_size=15, max_size=15))
def test_sums_are_exact_and_buckets_rise_in_any_order(
    shuffled: tuple[int, list[tuple[int, Window]]], waits: list[float]
) -> None:
    slices, parts = shuffled
    merged = Merged(slices)
    for (number, part), wait in zip(parts, waits, strict=False):
        merged.merger.add(number, part)
        merged.wait(wait)
    for number in range(slices):
        merged.merger.close(number)

    assert all(before.bucket < after.bucket for before, after in pairwise(merged.windows))
    expected, found = merge_windows(part for _, part in parts), merge_windows(merged.windows)
    for name in ("iterations", "arrivals", "dropped", "aborted", "sent_calls", "steps", "checks", "examples"):
        assert getattr(found, name) == getattr(expected, name)


def test_wide_parts_that_end_together_become_one_wide_window() -> None:
    merged = Merged(2)
    for number, iterations in ((0, 5), (1, 50)):
        merged.merger.add(number, Window(bucket=10, width=10, iterations=iterations, users=3))
    for number in (0, 1):
        merged.merger.add(number, Window(bucket=20, width=10, iterations=1))
        merged.merger.close(number)

    assert [(one.bucket, one.width, one.iterations) for one in merged.windows] == [(10, 10, 55), (20, 10, 2)]
    assert merged.windows[0].users == 6


def test_wide_and_narrow_parts_are_merged_without_a_bucket_twice() -> None:
    merged = Merged(2)
    for bucket in range(10, 18):
        merged.merger.add(0, window(bucket, 1))
    merged.wait(0.3)
    for bucket in (18, 19):
        merged.merger.add(0, window(bucket, 1))
    merged.merger.add(1, Window(bucket=10, width=10, iterations=100))
    merged.merger.close(0)
    merged.merger.close(1)

    assert [(one.bucket, one.width) for one in merged.windows] == [
        *((bucket, 1) for bucket in range(10, 19)),
        (19, 1),
    ]
    assert sum(one.iterations for one in merged.windows) == 110


def test_a_wide_part_of_the_past_is_counted_in_the_next_window() -> None:
    merged = Merged(2)
    merged.merger.add(0, window(15, 1))
    merged.wait(0.3)
    merged.merger.add(1, Window(bucket=5, width=11, iterations=100))
    for bucket in (16, 17):
        for number in (0, 1):
            merged.merger.add(number, window(bucket, 1))

    assert [(one.bucket, one.width, one.iterations) for one in merged.windows] == [(15, 1, 1), (16, 1, 102)]
