from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mainstay.clock import LONGEST_S, MAX_MS, SystemClock, duration_text, exact_duration, instant_ms, seconds
from mainstay.errors import InvalidInput
from mainstay.testing import VirtualClock


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("1.5m", 90.0),
        ("1h30m", 5400.0),
        ("2d", 172800.0),
        ("1w", 604800.0),
        (" 10S ", 10.0),
        ("0s", 0.0),
        (timedelta(minutes=2), 120.0),
    ],
)
def test_durations_are_read_as_people_write_them(written: Any, meant: float) -> None:
    assert seconds(written, field="timeout") == meant


@pytest.mark.parametrize(
    "bad", ["", " ", "5", "5 s", "s", "5x", "-5s", "1h 30m", "5s!", "five seconds", 5, 5.0, None, True]
)
def test_a_duration_without_a_unit_or_sense_is_refused_with_examples(bad: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        seconds(bad, field="timeout")

    assert refused.value.field == "timeout"
    assert (
        str(refused.value) == f"timeout: {bad!r} is not a duration; write it with a unit, like '30s', '5m' or '1h30m'"
    )


@pytest.mark.parametrize("bad", [timedelta(seconds=-1), "99999999999d", "36500d1ms", "9" * 400 + "d"])
def test_a_duration_out_of_range_is_refused_with_the_range(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="^timeout: .* is out of range; a duration is from zero to 36500d$"):
        seconds(bad, field="timeout")


def test_the_longest_duration_is_a_hundred_years() -> None:
    assert seconds("36500d", field="timeout") == LONGEST_S


@pytest.mark.parametrize(
    ("value_s", "shown"),
    [(0, "0s"), (0.25, "250ms"), (1, "1s"), (1.5, "1.5s"), (60, "1m"), (90, "1m30s"), (3600, "1h"), (90061, "1d1h")],
)
def test_durations_are_said_shortly(value_s: float, shown: str) -> None:
    assert duration_text(value_s) == shown


@given(st.integers(0, 48 * 3600).filter(lambda s: s < 3600 or s % 60 == 0).filter(lambda s: s < 86400 or s % 3600 == 0))
def test_a_duration_of_two_parts_or_less_reads_back_as_it_was(value_s: int) -> None:
    assert seconds(duration_text(value_s), field="x") == value_s


@given(st.timedeltas(timedelta(), timedelta(seconds=LONGEST_S)))
def test_an_exact_duration_reads_back_as_it_was(value: timedelta) -> None:
    assert timedelta(seconds=seconds(exact_duration(value), field="x")) == value


def test_an_aware_datetime_is_a_moment_whatever_its_zone() -> None:
    moment = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=-7)))

    assert instant_ms(moment, field="at") == instant_ms(elsewhere, field="at") == 1_772_368_200_000


def test_a_naive_datetime_is_refused_with_the_fix() -> None:
    with pytest.raises(InvalidInput, match="^at: the datetime has no time zone; pass an aware one"):
        instant_ms(datetime(2026, 3, 1), field="at")  # noqa: DTZ001 - the naive one is the point


@pytest.mark.parametrize("bad", ["2026-03-01", 1_700_000_000_000, None])
def test_what_is_no_datetime_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="^at: .* is not a datetime; pass an aware one"):
        instant_ms(bad, field="at")


@pytest.mark.parametrize("year", [1969, 3001])
def test_a_moment_far_from_now_is_taken_for_a_mistake(year: int) -> None:
    with pytest.raises(InvalidInput, match="^at: .* is out of range"):
        instant_ms(datetime(year, 6, 1, tzinfo=UTC), field="at")


def test_the_limit_is_the_year_3000() -> None:
    assert instant_ms(datetime(3000, 1, 1, tzinfo=UTC), field="at") == MAX_MS


def test_the_system_clock_tells_wall_time_and_a_steady_time() -> None:
    clock = SystemClock()
    before = datetime.now(UTC).timestamp() * 1000

    assert clock.now_ms() >= int(before)
    assert clock.lease_ms() <= clock.lease_ms()


def test_a_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock()
    wall, lease = clock.now_ms(), clock.lease_ms()
    assert (clock.now_ms(), clock.lease_ms()) == (wall, lease)

    clock.advance(2.5)
    assert (clock.now_ms(), clock.lease_ms()) == (wall + 2_500, lease + 2_500)
    clock.set_wall(wall - 3_600_000)
    assert (clock.now_ms(), clock.lease_ms()) == (wall - 3_600_000, lease + 2_500)
