"""Intervals, objects of the user's own, and how each is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mainstay.control.schedules import Cron, Every, StoredWhen, When, upcoming, when_of
from mainstay.control.schedules.when import next_tick
from mainstay.errors import InvalidInput

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMES = st.integers(0, 4_000_000_000_000).map(lambda ms: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms))


class Answers:
    """A `When` that always gives the same answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def next(self, after: datetime) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("interval", "anchor", "expected"),
    [
        ("15m", None, NOON + timedelta(minutes=15)),
        ("7m", None, NOON + timedelta(minutes=7)),
        (timedelta(days=1), None, datetime(2026, 3, 2, tzinfo=UTC)),
        ("1d", NOON - timedelta(days=9, hours=1), NOON + timedelta(hours=23)),
        ("1d", NOON + timedelta(days=9, hours=1), NOON + timedelta(hours=1)),
        ("1h", datetime(2026, 1, 1, 0, 20, tzinfo=timezone(timedelta(hours=1))), NOON + timedelta(minutes=20)),
    ],
)
def test_an_interval_counts_from_its_anchor_in_both_directions(
    interval: str, anchor: datetime | None, expected: datetime
) -> None:
    assert Every(interval, anchor).next(NOON) == expected


@given(st.integers(1000, 10**9), TIMES, TIMES)
def test_an_interval_is_a_grid(every_ms: int, anchor: datetime, after: datetime) -> None:
    every = Every(timedelta(milliseconds=every_ms), anchor)
    found = every.next(after)
    assert after < found <= after + timedelta(milliseconds=every_ms)
    assert (found - anchor) % timedelta(milliseconds=every_ms) == timedelta(0)


@pytest.mark.parametrize(
    ("interval", "anchor", "field"),
    [
        ("999ms", None, "every"),
        ("0s", None, "every"),
        ("soon", None, "every"),
        (5, None, "every"),
        ("1h", datetime(2026, 1, 1), "anchor"),  # noqa: DTZ001 - the point
    ],
)
def test_a_bad_interval_is_refused_with_the_field(interval: Any, anchor: datetime | None, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Every(interval, anchor)
    assert refused.value.field == field


@pytest.mark.parametrize("when", [Cron("*/5 2 * * *", tz="Europe/Berlin"), Every("15m"), Every("90s", NOON)])
def test_what_is_stored_ticks_at_the_same_times(when: When) -> None:
    revived = StoredWhen.of(when).revived()
    assert revived is not None
    assert upcoming(revived, NOON, 5) == upcoming(when, NOON, 5)
    assert revived == when


def test_an_object_of_the_users_own_is_only_named() -> None:
    mine = Answers(None)
    stored = StoredWhen.of(mine)
    assert (stored.kind, stored.text) == ("custom", "custom (Answers)")
    assert stored.revived() is None
    assert stored.revived(mine) is mine
    mine.text = "at full moon"  # type: ignore[attr-defined]
    assert StoredWhen.of(mine).text == "custom (at full moon)"


def test_people_write_an_expression_an_interval_or_pass_an_object() -> None:
    mine = Answers(None)
    assert when_of("0 3 * * *", tz="Europe/Berlin") == Cron("0 3 * * *", tz="Europe/Berlin")
    assert when_of(" @daily ") == Cron("@daily")
    assert when_of("15m") == when_of(timedelta(minutes=15)) == Every("15m")
    assert when_of(mine) is mine


@pytest.mark.parametrize(
    ("given", "tz", "complaint"),
    [
        ("15m", "Europe/Berlin", "tz: only a cron expression has a time zone"),
        (Answers(None), "Europe/Berlin", "tz: only a cron expression has a time zone"),
        (15, None, "when: 15 has no next(after)"),
        (Answers, None, "has no next(after)"),
        ("daily", None, "every: 'daily' is not a duration"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: Any, tz: str | None, complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        when_of(given, tz=tz)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (NOON, "is not later"),
        (NOON - timedelta(days=1), "is not later"),
        (NOON.replace(tzinfo=None) + timedelta(days=1), "not an aware datetime"),
        ("tomorrow", "not an aware datetime"),
    ],
)
def test_an_answer_that_would_tick_for_ever_or_cannot_be_read_is_refused(answer: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        next_tick(Answers(answer), NOON)


def test_answers_are_taken_in_utc_and_in_whole_milliseconds() -> None:
    zone = timezone(timedelta(hours=2))
    found = next_tick(Answers(datetime(2026, 3, 1, 14, 0, 0, 1, tzinfo=zone)), NOON)
    assert found == NOON + timedelta(milliseconds=1)
    assert found is not None
    assert found.utcoffset() == timedelta(0)


def test_never_again_and_the_year_3000_are_never() -> None:
    assert next_tick(Answers(None), NOON) is None
    assert next_tick(Answers(NOON.replace(year=3000)), NOON) is None
