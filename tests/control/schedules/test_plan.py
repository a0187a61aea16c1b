"""What is due: catch-up, its limits, and long gaps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from mainstay.control.schedules import Cron, Every, TickPlan, When, due_ticks, schedule
from mainstay.control.schedules.plan import COUNTED
from mainstay.errors import InvalidInput

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GRACE = timedelta(seconds=16)


class Counting:
    """Counts how often it is asked."""

    def __init__(self, when: When) -> None:
        self.when = when
        self.asked = 0

    def next(self, after: datetime) -> datetime | None:
        self.asked += 1
        return self.when.next(after)


class Listed:
    """Ticks at given times."""

    def __init__(self, *times: datetime) -> None:
        self.times = sorted(times)

    def next(self, after: datetime) -> datetime | None:
        return next((time for time in self.times if time > after), None)


def plan(when: When, last: datetime, now: datetime, catch_up: str = "once", limit: int = 100) -> TickPlan:
    spec = schedule("s", when, "demo.task", catch_up=catch_up, catch_up_limit=limit)  # type: ignore[arg-type]
    return due_ticks(spec, when, last, now, grace=GRACE)


def minutes(*offsets: float) -> tuple[datetime, ...]:
    return tuple(NOON + timedelta(minutes=offset) for offset in offsets)


HOURLY = Every("1h")


@pytest.mark.parametrize(
    ("catch_up", "last", "now", "ticks", "skipped", "passed"),
    [
        # nothing due
        ("skip", 0, 59, (), 0, None),
        ("once", 0, 59, (), 0, None),
        ("all", 0, 59, (), 0, None),
        # the tick is current: nobody missed anything
        ("skip", 0, 60, (60,), 0, None),
        ("once", 0, 60.2, (60,), 0, None),
        ("all", 0, 60.2, (60,), 0, None),
        # one missed
        ("skip", 0, 61, (), 1, 60),
        ("once", 0, 61, (60,), 0, None),
        ("all", 0, 61, (60,), 0, None),
        # three missed
        ("skip", 0, 200, (), 3, 180),
        ("once", 0, 200, (180,), 2, None),
        ("all", 0, 200, (60, 120, 180), 0, None),
        # two missed, and one current: it stands for them
        ("skip", 0, 180, (180,), 2, None),
        ("once", 0, 180, (180,), 2, None),
        ("all", 0, 180, (60, 120, 180), 0, None),
    ],
)
def test_catch_up(
    catch_up: str, last: float, now: float, ticks: tuple[float, ...], skipped: int, passed: float | None
) -> None:
    then, here = minutes(last, now)
    found = plan(HOURLY, then, here, catch_up)
    assert found.ticks == minutes(*ticks)
    assert (found.skipped, found.uncounted) == (skipped, False)
    assert found.passed == (None if passed is None else minutes(passed)[0])
    assert found.next == minutes(now // 60 * 60 + 60)[0]


def test_ticks_closer_than_the_grace_are_all_current() -> None:
    found = plan(Every("5s"), NOON, NOON + timedelta(seconds=17), "skip")
    assert found.ticks == tuple(NOON + timedelta(seconds=s) for s in (5, 10, 15))


def test_a_tick_is_current_up_to_the_grace_and_missed_beyond() -> None:
    tick = NOON + timedelta(hours=1)
    assert plan(HOURLY, NOON, tick + GRACE, "skip").ticks == (tick,)
    assert plan(HOURLY, NOON, tick + GRACE + timedelta(milliseconds=1), "skip").ticks == ()


def test_all_makes_at_most_the_limit_and_counts_what_it_drops() -> None:
    found = plan(HOURLY, NOON, NOON + timedelta(hours=10), "all", limit=3)
    assert found.ticks == minutes(480, 540, 600)
    assert (found.skipped, found.skipped_text) == (7, "7")


@pytest.mark.parametrize(("catch_up", "made"), [("skip", 0), ("once", 1), ("all", 100)])
def test_a_year_of_minutes_is_planned_with_few_questions(catch_up: str, made: int) -> None:
    when = Counting(Cron("* * * * *", tz="Europe/Berlin"))
    now = NOON + timedelta(days=365, seconds=40)

    found = plan(when, NOON, now, catch_up)

    newest = NOON + timedelta(days=365)
    assert found.ticks == tuple(newest - timedelta(minutes=n) for n in range(made))[::-1]
    assert found.passed == (None if made else newest)
    assert (found.skipped, found.uncounted, found.skipped_text) == (COUNTED, True, "more than 1000")
    assert found.next == newest + timedelta(minutes=1)
    assert when.asked < 2000


def test_a_tick_at_this_very_moment_is_the_newest_of_a_long_gap() -> None:
    found = plan(Every("1m"), NOON, NOON + timedelta(days=30), "all", limit=2)
    assert found.ticks == (NOON + timedelta(days=30, minutes=-1), NOON + timedelta(days=30))


def test_a_long_gap_with_uneven_ticks_keeps_the_newest() -> None:
    burst = [NOON + timedelta(seconds=n) for n in range(2000)]
    late = [NOON + timedelta(days=day) for day in (10, 200, 201)]

    found = plan(Listed(*burst, *late), NOON, NOON + timedelta(days=300), "all", limit=5)

    assert found.ticks == (*burst[-2:], *late)
    assert found.next is None


@pytest.mark.parametrize("count", [COUNTED + 4, COUNTED + 5, COUNTED + 6, COUNTED + 8])
def test_the_newest_are_found_wherever_the_counting_stops(count: int) -> None:
    times = [NOON + timedelta(minutes=n) for n in range(1, count + 1)]
    found = plan(Listed(*times), NOON, NOON + timedelta(days=9), "all", limit=5)
    assert found.ticks == tuple(times[-5:])
    assert found.uncounted is (count > COUNTED + 5)


def test_an_object_that_contradicts_itself_ends_in_an_error_and_not_in_a_loop() -> None:
    class Mad:
        def next(self, after: datetime) -> datetime:
            # dense when asked from its own answers, sparse from anywhere else
            step = timedelta(milliseconds=1) if after.microsecond % 1000 == 0 else timedelta(days=3650)
            return after + step

    with pytest.raises(InvalidInput, match="is inconsistent"):
        plan(Mad(), NOON, NOON + timedelta(days=300), "once")


# for any schedule and any split of a span --------------------------------------------------------------

WHENS = st.sampled_from(
    [
        Cron("*/20 * * * *", tz="Europe/Berlin"),
        Cron("30 2 * * *", tz="Europe/Berlin"),
        Cron("0 */3 * * *", tz="America/New_York"),
        Cron("15,45 1-2 * * *", tz="Australia/Lord_Howe"),
        Cron("*/45 * * * *", tz="Australia/Lord_Howe"),
        Every("37m"),
        Every("1h", NOON + timedelta(minutes=7)),
    ]
)
DAYS = st.sampled_from(
    [datetime(2026, *day, tzinfo=UTC) for day in ((3, 28), (3, 7), (10, 24), (4, 4), (10, 3), (7, 1))]
)


@given(WHENS, DAYS, st.lists(st.integers(0, 3 * 86_400), max_size=12))
def test_the_ticks_of_any_split_are_the_ticks_of_the_whole(when: When, day: datetime, cuts: list[int]) -> None:
    end = day + timedelta(days=3)
    whole = plan(when, day, end, "all", limit=1000).ticks
    assert whole

    parts: list[datetime] = []
    last = day
    for now in [*sorted(day + timedelta(seconds=cut) for cut in cuts), end]:
        found = plan(when, last, now, "all", limit=1000)
        parts += found.ticks
        # a tick moves the last tick; without one it stays where it is, as in the store
        last = found.ticks[-1] if found.ticks else last
        assert found.next is not None
        assert found.next > now
    assert tuple(parts) == whole


@given(WHENS, DAYS, st.integers(0, 86_400), st.sampled_from(["skip", "once", "all"]), st.integers(1, 20))
def test_a_plan_keeps_its_limits(when: When, day: datetime, gap: int, catch_up: str, limit: int) -> None:
    now = day + timedelta(seconds=gap)
    found = plan(when, day, now, catch_up, limit)
    every = plan(when, day, now, "all", 1000).ticks
    assert len(found.ticks) <= limit
    assert found.ticks == (every[-len(found.ticks) :] if found.ticks else ())
    assert len(found.ticks) + found.skipped == len(every)
    if catch_up == "skip":
        assert all(now - tick <= GRACE for tick in found.ticks)
    if catch_up == "once":
        assert bool(found.ticks) is bool(every)
