"""Cron expressions: what they accept, and what they mean when the clocks are changed."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from mainstay.control.schedules import Cron
from mainstay.errors import InvalidInput

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(cron: Cron, start: str, end: str) -> list[str]:
    """The ticks within a span of local time, as the clocks of the zone show them, with the offset."""
    zone = ZoneInfo(cron.tz)
    tick = datetime.fromisoformat(start).replace(tzinfo=zone).astimezone(UTC) - timedelta(seconds=1)
    until = datetime.fromisoformat(end).replace(tzinfo=zone).astimezone(UTC)
    found = []
    while (following := cron.next(tick)) is not None and following < until:
        tick = following
        found.append(tick.astimezone(zone).strftime("%d %H:%M %z")[:-2])
    return found


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("*/5 * * * *", "2026-03-01 12:02", "2026-03-01 12:05"),
        ("*/5 * * * *", "2026-03-01 12:05", "2026-03-01 12:10"),
        ("*/5 * * * *", "2026-03-01 12:04:59.999", "2026-03-01 12:05"),
        ("0 9-17 * * MON-FRI", "2026-03-06 17:00", "2026-03-09 09:00"),
        ("0 0 1,15 jan,JUL *", "2026-01-15 00:00", "2026-07-01 00:00"),
        ("30 4 L * *", "2026-02-01 00:00", "2026-02-28 04:30"),
        ("30 4 LW * *", "2026-02-01 00:00", "2026-02-27 04:30"),
        ("0 12 * * 5L", "2026-03-01 00:00", "2026-03-27 12:00"),
        ("0 12 * * MON#2", "2026-03-01 00:00", "2026-03-09 12:00"),
        ("0 0 * * 7", "2026-03-02 00:00", "2026-03-08 00:00"),
        ("0 0 29 2 *", "2026-03-01 00:00", "2028-02-29 00:00"),
        ("0 0 13 * 5", "2026-03-01 00:00", "2026-03-06 00:00"),  # day of month or day of week, as cron has it
        ("@hourly", "2026-03-01 12:02", "2026-03-01 13:00"),
        ("@daily", "2026-03-01 12:02", "2026-03-02 00:00"),
        ("@weekly", "2026-03-02 12:02", "2026-03-08 00:00"),
        ("@monthly", "2026-03-01 12:02", "2026-04-01 00:00"),
        ("@YEARLY", "2026-03-01 12:02", "2027-01-01 00:00"),
    ],
)
def test_the_next_time_is_the_first_that_matches(text: str, after: str, expected: str) -> None:
    assert Cron(text).next(at(after)) == at(expected)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("61 * * * *", "cron.minute: '61' is not a minute; write 0-59"),
        ("5,x * * * *", "cron.minute: 'x' is not a minute"),
        ("*/0 * * * *", "cron.minute: '*/0' is not a minute"),
        ("0 24 * * *", "cron.hour: '24' is not a hour; write 0-23"),
        ("0 5-3 * * *", "cron.hour: '5-3' is not a hour"),
        ("0 0 32 * *", "cron.day_of_month: '32' is not a day of month"),
        ("0 0 ? * *", "cron.day_of_month: '?' is not a day of month"),
        ("0 0 1 FOO *", "cron.month: 'FOO' is not a month; write 1-12 or JAN-DEC"),
        ("0 0 * * 8", "cron.day_of_week: '8' is not a day of week"),
        ("0 0 * * MON#6", "cron.day_of_week: 'MON#6' is not a day of week"),
        ("0 0 30 2 *", "cron.day_of_month: no month of '2' has a day 30: it would never tick"),
        ("* * * *", "cron: '* * * *' has 4 fields and needs five"),
        ("0 * * * * *", "has 6 fields and needs five"),
        ("", "has 0 fields and needs five"),
        ("@reboot", "cron: '@reboot' is not known; write @hourly, @daily"),
        (5, "cron: 5 is not a cron expression"),
    ],
)
def test_a_bad_expression_is_refused_with_the_field(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Cron(text)
    assert complaint in str(refused.value)


@pytest.mark.parametrize("tz", ["Berlin", "", "../etc/passwd", "Europe", None, 7])
def test_an_unknown_zone_is_refused(tz: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Cron("0 0 * * *", tz=tz)
    assert refused.value.field == "tz"
    assert repr(tz) in refused.value.rule


def test_a_zone_may_be_given_as_an_object() -> None:
    assert Cron("0 0 * * *", tz=ZoneInfo("Europe/Berlin")) == Cron("0 0  * * *", tz="Europe/Berlin")
    with pytest.raises(InvalidInput, match="a zone without a name cannot be stored"):
        Cron("0 0 * * *", tz=_nameless())


def _nameless() -> ZoneInfo:
    path = next(path for folder in zoneinfo.TZPATH if (path := Path(folder, "Europe/Berlin")).is_file())
    with path.open("rb") as file:
        return ZoneInfo.from_file(file)


# the day the clocks go forward -------------------------------------------------------------------------

BERLIN_SPRING = ("2026-03-29 00:00", "2026-03-29 05:00")  # 02:00 +01 is 03:00 +02
NEW_YORK_SPRING = ("2026-03-08 00:00", "2026-03-08 05:00")  # 02:00 -05 is 03:00 -04
LORD_HOWE_SPRING = ("2026-10-04 00:00", "2026-10-04 05:00")  # 02:00 +10:30 is 02:30 +11


@pytest.mark.parametrize(
    ("text", "tz", "span", "expected"),
    [
        # a fixed time that does not exist: once, when the gap is over
        ("30 2 * * *", "Europe/Berlin", BERLIN_SPRING, ["29 03:00 +02"]),
        ("0 2 * * *", "Europe/Berlin", BERLIN_SPRING, ["29 03:00 +02"]),
        ("30 2 * * *", "America/New_York", NEW_YORK_SPRING, ["08 03:00 -04"]),
        ("15 2 * * *", "Australia/Lord_Howe", LORD_HOWE_SPRING, ["04 02:30 +11"]),
        ("45 2 * * *", "Australia/Lord_Howe", LORD_HOWE_SPRING, ["04 02:45 +11"]),
        # several within the gap, and one right behind it, are one tick
        ("0,20,40 2 * * *", "Europe/Berlin", BERLIN_SPRING, ["29 03:00 +02"]),
        ("0 1,2,3 * * *", "Europe/Berlin", BERLIN_SPRING, ["29 01:00 +01", "29 03:00 +02"]),
        ("30 1,2,3 * * *", "Europe/Berlin", BERLIN_SPRING, ["29 01:30 +01", "29 03:00 +02", "29 03:30 +02"]),
        # a star in minute or hour: as the clock shows, nothing for what it does not show
        ("0 * * * *", "Europe/Berlin", BERLIN_SPRING, [f"29 {h} " + o for h, o in
            [("00:00", "+01"), ("01:00", "+01"), ("03:00", "+02"), ("04:00", "+02")]]),
        ("*/30 2 * * *", "Europe/Berlin", BERLIN_SPRING, []),
        ("30 */2 * * *", "America/New_York", NEW_YORK_SPRING, ["08 00:30 -05", "08 04:30 -04"]),
        ("*/20 1-2 * * *", "Australia/Lord_Howe", LORD_HOWE_SPRING,
            ["04 01:00 +10", "04 01:20 +10", "04 01:40 +10", "04 02:40 +11"]),
        ("*/30 3 * * *", "Australia/Lord_Howe", LORD_HOWE_SPRING, ["04 03:00 +11", "04 03:30 +11"]),
        # a whole day that Samoa left out
        ("0 12 * * *", "Pacific/Apia", ("2011-12-29 00:00", "2012-01-01 00:00"),
            ["29 12:00 -10", "31 00:00 +14", "31 12:00 +14"]),
        ("0 */12 * * *", "Pacific/Apia", ("2011-12-29 00:00", "2012-01-01 00:00"),
            ["29 00:00 -10", "29 12:00 -10", "31 00:00 +14", "31 12:00 +14"]),
    ],
)  # fmt: skip
def test_when_the_clocks_go_forward(text: str, tz: str, span: tuple[str, str], expected: list[str]) -> None:
    assert shown(Cron(text, tz=tz), *span) == expected


# the day the clocks go back ----------------------------------------------------------------------------

BERLIN_AUTUMN = ("2026-10-25 00:00", "2026-10-25 05:00")  # 03:00 +02 is 02:00 +01
NEW_YORK_AUTUMN = ("2026-11-01 00:00", "2026-11-01 04:00")  # 02:00 -04 is 01:00 -05
LORD_HOWE_AUTUMN = ("2026-04-05 00:00", "2026-04-05 04:00")  # 02:00 +11 is 01:30 +10:30


@pytest.mark.parametrize(
    ("text", "tz", "span", "expected"),
    [
        # a fixed time that exists twice: once, the first
        ("30 2 * * *", "Europe/Berlin", BERLIN_AUTUMN, ["25 02:30 +02"]),
        ("0,30 2,3 * * *", "Europe/Berlin", BERLIN_AUTUMN,
            ["25 02:00 +02", "25 02:30 +02", "25 03:00 +01", "25 03:30 +01"]),
        ("30 1 * * *", "America/New_York", NEW_YORK_AUTUMN, ["01 01:30 -04"]),
        ("45 1 * * *", "Australia/Lord_Howe", LORD_HOWE_AUTUMN, ["05 01:45 +11"]),
        # a star in minute or hour: as the clock shows, so twice
        ("30 * * * *", "Europe/Berlin", BERLIN_AUTUMN,
            ["25 00:30 +02", "25 01:30 +02", "25 02:30 +02", "25 02:30 +01", "25 03:30 +01", "25 04:30 +01"]),
        ("*/30 2 * * *", "Europe/Berlin", BERLIN_AUTUMN,
            ["25 02:00 +02", "25 02:30 +02", "25 02:00 +01", "25 02:30 +01"]),
        ("0 */2 * * *", "Europe/Berlin", BERLIN_AUTUMN,
            ["25 00:00 +02", "25 02:00 +02", "25 02:00 +01", "25 04:00 +01"]),
        ("0 * * * *", "America/New_York", NEW_YORK_AUTUMN,
            ["01 00:00 -04", "01 01:00 -04", "01 01:00 -05", "01 02:00 -05", "01 03:00 -05"]),
        ("*/15 1 * * *", "Australia/Lord_Howe", LORD_HOWE_AUTUMN,
            ["05 01:00 +11", "05 01:15 +11", "05 01:30 +11", "05 01:45 +11", "05 01:30 +10", "05 01:45 +10"]),
        ("30 * * * *", "Australia/Lord_Howe", LORD_HOWE_AUTUMN,
            ["05 00:30 +11", "05 01:30 +11", "05 01:30 +10", "05 02:30 +10", "05 03:30 +10"]),
        ("*/30 2 * * *", "Australia/Lord_Howe", LORD_HOWE_AUTUMN, ["05 02:00 +10", "05 02:30 +10"]),
    ],
)  # fmt: skip
def test_when_the_clocks_go_back(text: str, tz: str, span: tuple[str, str], expected: list[str]) -> None:
    assert shown(Cron(text, tz=tz), *span) == expected


@pytest.mark.parametrize(
    ("text", "tz", "after", "expected"),
    [
        # both hours are over for a fixed time once the first is
        ("30 2 * * *", "Europe/Berlin", "2026-10-25 01:10", "2026-10-26 01:30"),
        ("0,30 1-2 * * *", "America/New_York", "2026-11-01 06:10", "2026-11-01 07:00"),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 15:05", "2026-04-05 15:15"),
        # and not for a clock that goes round
        ("*/30 2 * * *", "Europe/Berlin", "2026-10-25 01:10", "2026-10-25 01:30"),
    ],
)
def test_asked_within_the_second_of_two_equal_hours(text: str, tz: str, after: str, expected: str) -> None:
    assert Cron(text, tz=tz).next(at(after)) == at(expected)


def test_a_rare_time_right_behind_a_change_far_away_is_not_stepped_over() -> None:
    rare = Cron("*/30 0 31 12 *", tz="Pacific/Apia")
    assert rare.next(at("2011-06-01 00:00")) == at("2011-12-30 10:00")


# for any expression ------------------------------------------------------------------------------------

FIELDS = st.tuples(
    st.sampled_from(["*", "*/7", "0", "30", "0,45", "10-12"]),
    st.sampled_from(["*", "*/2", "0", "2", "1-3", "2,13"]),
    st.sampled_from(["*", "*", "1", "L", "*/5", "25-31"]),
    st.sampled_from(["*", "*", "3,10", "JAN-JUN", "2"]),
    st.sampled_from(["*", "*", "SUN", "1-5", "0L", "SUN#1"]),
)
CRONS = st.builds(lambda fields, tz: Cron(" ".join(fields), tz=tz), FIELDS, st.sampled_from(ZONES))
#: the clock changes of 2026 in the zones above, or any time
NEAR_CHANGES = st.builds(
    lambda day, seconds: day + timedelta(seconds=seconds),
    st.sampled_from([at(day) for day in ("2026-03-08", "2026-03-29", "2026-04-04", "2026-10-03", "2026-10-25",
                                         "2026-11-01", "2026-02-15", "2011-12-30")]),
    st.integers(-90_000, 90_000),
)  # fmt: skip
TIMES = NEAR_CHANGES | st.integers(1_000_000_000, 2_100_000_000).map(lambda s: datetime.fromtimestamp(s, UTC))


@given(CRONS, TIMES)
def test_the_next_time_is_strictly_later_and_nothing_lies_between(cron: Cron, after: datetime) -> None:
    found = cron.next(after)
    assert found is not None
    assert found > after
    assert found.utcoffset() == timedelta(0)
    # asked from anywhere in between, the answer is the same
    assert cron.next(after + (found - after) / 2) == found
    assert cron.next(found - timedelta(milliseconds=1)) == found


@settings(max_examples=50)
@given(CRONS.filter(lambda cron: "*" in "".join(cron.text.split()[:2])), TIMES)
def test_as_the_clock_goes_round_every_minute_that_it_shows_is_judged_by_itself(cron: Cron, after: datetime) -> None:
    zone = ZoneInfo(cron.tz)
    everywhere = Cron(cron.text)
    minute = after.replace(second=0, microsecond=0)
    expected = []
    for n in range(1, 200):
        shown_here = (minute + timedelta(minutes=n)).astimezone(zone).replace(tzinfo=UTC)
        if everywhere.next(shown_here - timedelta(seconds=1)) == shown_here:
            expected.append(minute + timedelta(minutes=n))
    found = []
    tick = after
    while (tick := cron.next(tick)) is not None and tick <= minute + timedelta(minutes=199):
        found.append(tick)
    assert found == expected


@given(CRONS.filter(lambda cron: cron.tz != "Pacific/Apia"), TIMES)  # the day it left out ticks on the next
def test_a_fixed_time_ticks_once_on_each_day_it_is_due_on(cron: Cron, after: datetime) -> None:
    _, hour, *rest = cron.text.split()
    daily = Cron(" ".join(["30", hour if hour.isdigit() else "2", *rest]), tz=cron.tz)
    zone = ZoneInfo(cron.tz)
    ticks = []
    tick: datetime | None = after
    for _ in range(5):
        assert tick is not None
        tick = daily.next(tick)
        assert tick is not None
        ticks.append(tick.astimezone(zone).date())
    assert len(set(ticks)) == len(ticks)
