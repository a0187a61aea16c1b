"""Thresholds: how they are written, what is wrong with those that cannot be read, and when they hold."""

from __future__ import annotations

import textwrap

import msgspec
import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.stats.grammar import Threshold, parse
from mainstay.load.stats.model import CheckStats, MetricStats, StepStats, ThresholdOutcome, Window
from mainstay.load.stats.tally import merge_windows
from mainstay.load.stats.thresholds import ThresholdJudge, check, threshold, thresholds_of, verdict_of
from tests.load.stats.made import FIRST, header, sketched, step, window

# written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "p95 of browse < 200ms for 10s",
        "p99.9 of Shop.browse <= 1.5s over 1m30s, stop as failed",
        "response p95 < 300ms",
        "ok p95 of browse < 300ms over 10s",
        "ok mean < 300ms",
        "mean of 'check out' < 0.2s within 10s",
        "stdev < 50ms",
        "rate > 1000/s",
        "rate of login >= 20",
        "requests > 10000, stop as passed",
        "failures < 10",
        "errors of login == 0",
        "error rate < 1%, stop as failed",
        "rc5xx of login < 5%",
        "rc404 < 10",
        "checks of fresh > 99.5%",
        "failed checks < 3",
        "dropped == 0",
        "bytes > 10MB",
        "received > 5MB/s over 5s",
        "users != 0",
        "counter orders > 10/s",
        "trend cart p95 < 3",
        "trend 'cart size' mean < 3",
        "rate hit_ratio > 90%",
        "gauge depth < 100",
        "iterations > 5",
        "skipped == 0",
        "aborted == 0",
    ],
)
def test_what_is_written_is_read_and_written_alike(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("loose", "strict"),
    [
        ("  P95 OF browse<200 MS  FOR 10s ", "p95 of browse < 200MS for 10s"),
        ("avg = 1s", "mean == 1s"),
        ("median < 1s", "p50 < 1s"),
        ("hits > 5", "rate > 5"),
        ("count > 5", "requests > 5"),
        ("error_rate < 1 %", "error rate < 1%"),
        ("failure rate < 1%", "error rate < 1%"),
        ("rc4?? < 5", "rc4xx < 5"),
        ("p95 < 1s,stop as failed", "p95 < 1s, stop as failed"),
    ],
)
def test_there_are_other_ways_to_write_the_same(loose: str, strict: str) -> None:
    assert str(parse(loose)) == strict


@given(
    metric=st.sampled_from(["p50", "p99.99", "response mean", "max", "min"]),
    of=st.none() | st.sampled_from(["browse", "Shop.browse", "check out", "a-b"]),
    op=st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    number=st.integers(1, 10_000) | st.decimals("0.001", "99", places=3),
    unit=st.sampled_from(["us", "ms", "s", "m", "h"]),
    how=st.sampled_from([("", ""), ("for", "10s"), ("over", "1m30s"), ("within", "1.5s")]),
    stop=st.sampled_from([None, "failed", "passed"]),
)
def test_any_threshold_comes_back_from_its_text(
    metric: str, of: str | None, op: str, number: object, unit: str, how: tuple[str, str], stop: str | None
) -> None:
    made = Threshold(metric=metric, of=of, op=op, limit=f"{number}{unit}", how=how[0], window=how[1], stop=stop)
    assert parse(str(made)) == made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "p95 of browse << 200ms",
            """
            expected a value, like 200ms
              p95 of browse << 200ms
                             ^""",
        ),
        (
            "p95 < 200",
            """
            expected a unit: us, µs, ms, s, m, h; like 200ms
              p95 < 200
                       ^""",
        ),
        (
            "eror rate < 1%",
            """
            expected a metric, like p95, error rate or requests; did you mean error rate?
              eror rate < 1%
              ^""",
        ),
        (
            "error rate < 1",
            """
            expected a percentage: error rate is a share
              error rate < 1
                            ^""",
        ),
        (
            "p95 < 200mss",
            """
            expected a unit: us, µs, ms, s, m, h; like 200ms; did you mean ms?
              p95 < 200mss
                       ^""",
        ),
        (
            "p95 is 200ms",
            """
            expected a comparison: <, <=, >, >=, ==, !=
              p95 is 200ms
                  ^""",
        ),
        (
            "p95 < 200ms for ten seconds",
            """
            expected a duration, like 10s or 1m30s
              p95 < 200ms for ten seconds
                              ^""",
        ),
        (
            "p95 < 200ms for 500ms",
            """
            expected at least 1s; thresholds are judged once a second
              p95 < 200ms for 500ms
                              ^""",
        ),
        (
            "p95 < 200ms since 10s",
            """
            expected for, over or within and a time, or ', stop as failed'
              p95 < 200ms since 10s
                          ^""",
        ),
        (
            "p95 < 200ms, stop as fail",
            """
            expected failed or passed; did you mean failed?
              p95 < 200ms, stop as fail
                                   ^""",
        ),
        (
            "p95 < 200ms, stop",
            """
            expected as: write ', stop as failed' or ', stop as passed'
              p95 < 200ms, stop
                               ^""",
        ),
        (
            "p95 < 1s, stop as failed or so",
            """
            expected nothing more
              p95 < 1s, stop as failed or so
                                       ^""",
        ),
        (
            "p101 < 1s",
            """
            expected a percentile above p0 and up to p100
              p101 < 1s
              ^""",
        ),
        (
            "ok rate > 5",
            """
            expected a metric, like p95, error rate or requests
              ok rate > 5
                 ^""",
        ),
        (
            "users of login > 5",
            """
            expected a comparison; users has no steps
              users of login > 5
                    ^""",
        ),
        (
            "error rat < 1%",
            """
            expected rate
              error rat < 1%
                    ^""",
        ),
        (
            "trend < 5",
            """
            expected the name of the trend
              trend < 5
                    ^""",
        ),
        (
            "p95 of < 5ms",
            """
            expected the name of a step
              p95 of < 5ms
                     ^""",
        ),
        (
            "",
            """
            expected a metric, like p95, error rate or requests

              ^""",
        ),
    ],
)
def test_an_error_points_at_the_character(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    wanted = "thresholds: " + textwrap.dedent(said).lstrip("\n")
    assert [line.rstrip() for line in str(refused.value).split("\n")] == wanted.split("\n")
    assert refused.value.field == "thresholds"


@given(st.text("p95 of<=>1%ms,'\"stoperrorratefor.", max_size=30) | st.text(max_size=10))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    try:
        said = str(parse(text))
    except InvalidInput as refused:
        said = str(refused).splitlines()[-1].strip()
    assert said == "^" or parse(said)  # type: ignore[truthy-bool]


def test_parts_make_the_same_threshold_as_text() -> None:
    assert threshold("p95", of="browse", below="200ms", lasting="10s") == parse("p95 of browse < 200ms for 10s")
    assert threshold("requests", at_least=5, stop="passed") == parse("requests >= 5, stop as passed")
    assert threshold("error rate", at_most="1%", within="1m") == parse("error rate <= 1% within 1m")
    assert thresholds_of(["p95 < 1s", threshold("p95", below="1s")]) == [parse("p95 < 1s")] * 2


def test_parts_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput, match="needs one of below, above"):
        threshold("p95", below="1s", above="2s")
    with pytest.raises(InvalidInput, match="takes one of lasting, over and within"):
        threshold("p95", below="1s", over="1s", within="2s")


def test_steps_that_are_not_there_are_refused_by_name() -> None:
    known = header()
    known.workflows[0]["steps"] += [{"name": "fresh", "kind": "check"}, {"name": "note", "kind": "action"}]
    check(thresholds_of(["p95 of Shop.browse < 1s", "checks of fresh > 9%", "errors of note == 0", "users > 1"]), known)
    check(thresholds_of(["errors of fresh == 0"]), known)
    for text, said in (
        ("p95 of brwse < 1s", "there is no step brwse; did you mean browse?"),
        ("p95 of zzz < 1s", "there is no step zzz; known steps: login, browse"),
        ("p95 of note < 1s", "note is of kind action, and has no service; measured steps: login, browse"),
        ("error rate of fresh < 1%", "fresh is of kind check and has no requests, so no error rate; write"),
        ("error rate of note < 1%", "note is of kind action and has no requests, so no error rate; write"),
        ("checks of login > 9%", "login is of kind measured, and has no checks; checks: fresh"),
    ):
        with pytest.raises(InvalidInput) as refused:
            check([parse(text)], known)
        assert said in str(refused.value)


def test_what_can_never_have_a_value_is_refused() -> None:
    closed, rated = header(), header()
    closed.workflows[0]["open"], rated.workflows[0]["open"] = False, True
    idle = header()
    idle.workflows[0]["steps"] = [{"name": "note", "kind": "action"}]
    for text, known, said in (
        ("response p95 < 1s", closed, "leave out `response` for service time\n  response p95 < 1s\n  ^"),
        ("response p95 of browse < 1s", closed, "response time needs a rate"),
        ("dropped < 1%", closed, "arrivals are dropped only with a rate"),
        ("checks > 99%", rated, "no step is a check; annotate one with `-> Check`\n  checks > 99%\n  ^"),
        ("failed checks < 1%", rated, "no step is a check"),
        ("p95 < 1s", idle, "no step is measured"),
    ):
        with pytest.raises(InvalidInput) as refused:
            check([parse(text)], known)
        assert said in str(refused.value)


def test_what_may_have_a_value_or_counts_none_is_not_refused() -> None:
    closed, rated, both = header(), header(), header()
    closed.workflows[0]["open"], rated.workflows[0]["open"] = False, True
    rated.workflows[0]["steps"] += [{"name": "fresh", "kind": "check"}]
    both.workflows = [*closed.workflows, {"name": "Rated", "open": True, "steps": [{"name": "buy"}]}]
    check(thresholds_of(["failed checks < 1", "dropped < 1", "error rate < 1%", "p95 < 1s"]), closed)
    check(thresholds_of(["response p95 < 1s", "dropped < 1%", "checks > 99%"]), rated)
    check(thresholds_of(["response p95 < 1s", "response p95 of buy < 1s"]), both)


# judged -------------------------------------------------------------------------------------------------

SLOW = step(ok=(0.5,) * 10)
FAST = step(ok=(0.1,) * 10)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("error rate < 150%", "expected a share from 0% to 100%"),
        ("checks > -1%", "expected a share from 0% to 100%"),
        ("checks > 100%", "nothing is above 100%"),
        ("error rate < 0%", "nothing is below 0%"),
        ("p95 < -5ms", "expected a limit of 0 or more"),
        ("rate > -1", "expected a limit of 0 or more"),
        ("errors < 0", "this metric is never below 0, so write == 0"),
        ("counter orders < 0", "this metric is never below 0, so write == 0"),
    ],
)
def test_a_limit_that_no_value_can_keep_or_break_is_refused_and_pointed_at(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse(text)

    assert why in str(refusal.value)
    assert str(refusal.value).endswith(f"  {text}\n  {' ' * (text.rindex(' ') + 1)}^")


@pytest.mark.parametrize(
    "text", ["error rate <= 100%", "errors == 0", "error rate == 0%", "gauge drift > -5", "trend x p95 < -1"]
)
def test_limits_at_the_edge_and_below_0_where_values_can_be_are_read(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize("text", ["requests > 15", "requests >= 20", "requests > 15, stop as passed"])
def test_a_count_that_is_not_reached_yet_is_pending_and_not_broken(text: str) -> None:
    judge = ThresholdJudge([parse(text)])
    seen = []
    for one in seconds(step(ok=(0.1,)), step(ok=(0.1,))):
        judge.add(one)
        seen.append(judge.outcomes()[0].pending)

    assert seen[10:19] == [True] * 9
    assert not seen[-1]
    assert not judge.finish()[0].pending


def test_a_rate_of_the_whole_run_is_by_the_time_that_there_was_load() -> None:
    judge = ThresholdJudge([parse("rate > 4/s"), parse("bytes < 1KB/s")])
    for one in seconds(step(ok=(0.1,)), None):
        judge.add(one)

    assert judge.outcomes()[0].value == 5.0
    assert judge.finish(2.5)[0].value == 4.0


def judged(text: str, windows: list[Window]) -> tuple[ThresholdJudge, ThresholdOutcome]:
    judge = ThresholdJudge([parse(text)])
    for one in windows:
        judge.add(one)
    (outcome,) = judge.finish()
    return judge, outcome


def seconds(*steps: StepStats | None) -> list[Window]:
    """A second of tenths for each; None: nothing was measured in it."""
    return [window(at * 10 + tenth, *([one] if one else [])) for at, one in enumerate(steps) for tenth in range(10)]


@pytest.mark.parametrize("text", ["users == 2", "users == 2 for 1s", "users == 2 over 1s", "users == 2 within 1s"])
def test_users_are_judged_until_the_end_begins(text: str) -> None:
    loaded = [window(at, users=2) for at in range(12)]
    left = [Window(bucket=FIRST + at, users=1, draining=True) for at in range(12, 45)]

    assert judged(text, [*loaded, *left])[1].passed
    assert judged(text, [loaded[0], *left])[1].shown == "2"
    assert not judged(text, [*loaded, *(window(at, users=1) for at in range(12, 45))])[1].passed


def test_over_the_whole_run_the_end_decides() -> None:
    _, outcome = judged("p95 < 200ms", seconds(SLOW, *[FAST] * 30))
    assert (outcome.passed, outcome.at_s, outcome.shown) == (True, None, "100 ms")
    _, outcome = judged("p95 < 200ms", seconds(FAST, SLOW, SLOW))
    assert (outcome.passed, outcome.at_s, outcome.shown) == (False, 2.0, "500 ms")


def test_a_threshold_stands_somewhere_while_the_run_goes_on() -> None:
    judge = ThresholdJudge([parse("p95 < 200ms")])
    assert judge.outcomes()[0].shown == "no value yet"
    for one in seconds(SLOW):
        judge.add(one)
    assert (judge.outcomes()[0].passed, judge.outcomes()[0].shown) == (False, "500 ms")


@pytest.mark.parametrize(
    ("run", "passed", "at_s"),
    [
        ([SLOW, SLOW, FAST, SLOW, SLOW], True, None),
        ([FAST, SLOW, SLOW, SLOW, FAST], False, 4.0),
        ([SLOW, SLOW, None, SLOW, FAST], False, 4.0),
        ([SLOW, SLOW], True, None),
    ],
)
def test_for_a_time_fails_when_every_second_of_it_was_broken(
    run: list[StepStats | None], passed: bool, at_s: float | None
) -> None:
    _, outcome = judged("p95 of browse < 200ms for 3s", seconds(*run))
    assert (outcome.passed, outcome.at_s) == (passed, at_s)


def test_over_a_time_takes_its_values_together() -> None:
    # 10 of 30 values are slow: the 60th percentile of any three seconds is fast, the 90th is not
    run = seconds(FAST, FAST, FAST, SLOW, FAST, FAST, FAST)
    assert judged("p60 < 200ms over 3s", run)[1].passed
    _, outcome = judged("p90 < 200ms over 3s", run)
    assert (outcome.passed, outcome.at_s, outcome.shown) == (False, 4.0, "500 ms")


def test_over_a_time_longer_than_the_run_is_judged_by_what_there_is() -> None:
    assert not judged("p90 < 200ms over 1m", seconds(SLOW))[1].passed
    assert judged("p90 < 200ms over 1m", seconds(FAST))[1].passed


@pytest.mark.parametrize("text", ["p95 < 200ms for 2s", "p95 < 200ms over 2s", "rate > 150/s within 3s"])
def test_what_was_decided_for_good_stays_when_another_judge_goes_on(text: str) -> None:
    first = ThresholdJudge([parse(text)])
    for one in seconds(SLOW, SLOW, SLOW, SLOW):
        first.add(one)
    [before] = first.outcomes()
    assert not before.passed

    second = ThresholdJudge([parse(text)], earlier=[before])
    for one in seconds(*[FAST] * 20):
        second.add(one)

    [after] = second.finish()
    assert (after.passed, after.at_s, after.shown) == (False, before.at_s, before.shown)


@pytest.mark.parametrize(
    ("text", "passed"), [("p95 < 200ms, stop as failed", False), ("requests > 150, stop as passed", True)]
)
def test_a_run_that_a_threshold_has_stopped_stays_stopped_when_another_judge_goes_on(text: str, passed: bool) -> None:
    first = ThresholdJudge([parse(text)])
    for one in seconds(SLOW, SLOW):
        first.add(one)
    assert first.stop is not None

    second = ThresholdJudge([parse(text)], earlier=first.outcomes())
    assert second.stop == first.stop
    [after] = second.finish()
    assert (after.passed, after.stopped) == (passed, True)


def test_what_the_end_decides_is_judged_again_by_another_judge() -> None:
    first = ThresholdJudge([parse("p95 < 200ms")])
    for one in seconds(SLOW):
        first.add(one)
    second = ThresholdJudge([parse("p95 < 200ms")], earlier=first.outcomes())
    for one in seconds(SLOW, *[FAST] * 30):
        second.add(one)
    assert second.finish()[0].passed


@pytest.mark.parametrize(
    "text", ["failures < 50 within 2s", "rate < 5000/s within 2s", "requests < 150 within 1s", "p95 < 200ms for 2s"]
)
def test_the_sum_of_many_seconds_is_not_judged_as_one(text: str) -> None:
    whole = merge_windows([*seconds(*[step("browse", ok=(0.1,) * 90, failed=(0.1,) * 10)] * 40)])
    judge = ThresholdJudge([parse(text), parse("requests > 4100")])
    judge.add(msgspec.structs.replace(whole, adopted=True))
    for one in seconds(*[FAST] * 3):
        judge.add(msgspec.structs.replace(one, bucket=one.bucket + whole.width))

    stretches, all_of_it = judge.finish()
    assert stretches.passed, stretches
    assert all_of_it.passed


@pytest.mark.parametrize("width", [2, 5, 10, 20, 30])
@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("p95 < 200ms for 6s", 12.0),
        ("p95 < 200ms over 6s", 12.0),
        ("p50 < 200ms within 6s", 12.0),
        ("failures < 50 within 6s", 12.0),
        ("rate < 150/s within 6s", 12.0),
    ],
)
def test_wide_windows_are_judged_as_soon_as_they_end(text: str, at_s: float, width: int) -> None:
    """As those of slices whose leader has much to do, or after an outage of the bus."""
    slow = step(ok=(0.5,) * 18, failed=(0.5,) * 2)
    run = seconds(*[FAST] * 6, *[slow] * 6, *[FAST] * 6)
    wide = [merge_windows(run[at : at + width]) for at in range(0, len(run), width)]

    _, narrow = judged(text, run)
    _, found = judged(text, wide)

    assert not narrow.passed
    assert not found.passed
    assert narrow.at_s is not None
    assert found.at_s is not None
    assert narrow.at_s <= found.at_s <= max(at_s, narrow.at_s + width / 10)


def test_over_a_long_time_is_judged_in_pieces() -> None:
    _, outcome = judged("rate > 50/s over 2m", seconds(*[FAST] * 130, *[None] * 90))
    assert not outcome.passed
    # when only half of the last two minutes had calls, at 100 a second
    assert outcome.at_s == 190.0


def test_within_a_time_is_judged_from_the_first_second_on() -> None:
    # 10 of 20 values are slow when the window is full, but all of them are before
    _, outcome = judged("p50 < 200ms within 2s", seconds(SLOW, FAST, FAST))
    assert (outcome.passed, outcome.at_s, outcome.shown) == (False, 1.0, "500 ms")
    assert judged("p50 < 200ms over 2s", seconds(SLOW, FAST, FAST))[1].passed
    assert judged("p50 < 200ms within 2s", seconds(FAST, SLOW, FAST))[1].passed


def test_within_a_time_is_broken_by_any_stretch_of_that_length() -> None:
    _, outcome = judged("p90 < 200ms within 2s", seconds(*[FAST] * 5, SLOW, *[FAST] * 90))
    assert (outcome.passed, outcome.at_s, outcome.shown) == (False, 6.0, "500 ms")
    assert not judged("p90 < 200ms within 1m", seconds(SLOW))[1].passed


def fails_at(*tenths: int, until: int) -> list[Window]:
    """A call each tenth of a second; those at these tenths fail."""
    return [
        window(at, step(failed=(0.1,) * tenths.count(at)) if at in tenths else step(ok=(0.1,))) for at in range(until)
    ]


@pytest.mark.parametrize(
    ("tenths", "passed", "at_s"),
    [
        ([3, 3, 3, 3, 3], False, 1.0),
        # within 20 tenths, though in three of our seconds
        ([59, 59, 65, 75, 78], False, 8.0),
        # within 21
        ([58, 58, 65, 75, 78], True, None),
        ([5, 15, 25, 35, 45, 55, 65, 75, 85, 95], True, None),
        # what is left of a second when the run ends
        ([102, 103, 104, 105, 106], False, 10.7),
    ],
)
def test_a_count_within_a_time_is_that_of_any_such_time(tenths: list[int], passed: bool, at_s: float | None) -> None:
    _, outcome = judged("failures < 5 within 2s", fails_at(*tenths, until=107))
    assert (outcome.passed, outcome.at_s, outcome.shown == "5") == (passed, at_s, not passed)


def test_a_count_within_a_time_ends_a_run() -> None:
    judge, outcome = judged("failures < 5 within 2s, stop as failed", fails_at(1, 2, 3, 24, 25, 26, 27, 28, until=90))
    assert (judge.stop, outcome.stopped, outcome.at_s) == ("failed", True, 3.0)


def test_a_count_that_has_to_be_reached_within_a_time_has_that_time() -> None:
    assert judged("requests >= 250 within 3s", seconds(*[FAST] * 9))[1].passed
    _, outcome = judged("requests >= 250 within 3s", seconds(FAST, FAST, None, FAST))
    assert (outcome.passed, outcome.at_s) == (False, 3.0)
    # it ended before that
    assert not judged("requests >= 250 within 3s", seconds(FAST, FAST))[1].passed


def test_a_long_time_within_which_something_holds_is_kept_in_few_pieces() -> None:
    hour = [Window(bucket=FIRST + at * 10, width=10, steps=[step(failed=(0.1,))]) for at in range(4000)]
    _, outcome = judged("failures < 3500 within 1h", hour)
    assert (outcome.passed, outcome.shown) == (False, "3,500")
    assert judged("failures <= 3600 within 1h", hour)[1].passed
    assert judged("mean < 1s within 1h", hour)[1].passed


def test_the_last_part_of_a_second_makes_no_rate() -> None:
    assert judged("rate > 90/s within 1s", [*seconds(FAST, FAST), window(20)])[1].passed


def test_nothing_measured_is_no_pass() -> None:
    for text in ("p95 < 1s", "p95 < 1s for 1s", "error rate < 1% over 1s", "checks > 1% within 1s", "gauge depth < 1"):
        judge, outcome = judged(text, seconds(None, None))
        assert (outcome.passed, outcome.shown, outcome.value) == (False, "no value", None)
        assert judge.stop is None
    assert judged("failures < 1", seconds(None))[1].passed


def test_a_run_stops_as_failed_when_a_threshold_fails() -> None:
    judge = ThresholdJudge(thresholds_of(["p95 < 1h", "p95 < 200ms for 2s, stop as failed"]))
    stops = []
    for one in seconds(FAST, SLOW, SLOW, FAST, FAST):
        judge.add(one)
        stops.append(judge.stop)
    assert stops.index("failed") == 29
    first, second = judge.finish()
    assert (first.passed, first.stopped) == (True, False)
    assert (second.passed, second.stopped, second.at_s) == (False, True, 3.0)
    assert verdict_of([first, second], "finished") == "failed"


@pytest.mark.parametrize(
    ("ended", "passed", "verdict"),
    [
        ("finished", True, "passed"),
        ("stopped by a threshold", True, "passed"),
        ("interrupted", True, "interrupted"),
        ("interrupted", False, "interrupted"),
        ("cancelled: by ann", True, "interrupted"),
        ("running", True, "running"),
        ("running", False, "running"),
        ("lost: the recording has 3 s and no end", True, "lost"),
        ("lost: the recording has 3 s and no end", False, "lost"),
        ("failed: a generator was lost", True, "failed"),
    ],
)
def test_only_a_run_that_came_to_its_end_can_have_passed(ended: str, passed: bool, verdict: str) -> None:
    assert verdict_of([ThresholdOutcome(text="p95 < 1s", passed=passed)], ended) == verdict


def test_what_stopped_a_run_stays_failed_while_it_drains() -> None:
    judge, outcome = judged("error rate < 10%, stop as failed", seconds(step(failed=(0.1,)), *[FAST] * 9))
    assert (judge.stop, outcome.passed, outcome.stopped, outcome.shown) == ("failed", False, True, "100 %")


def test_a_run_stops_as_passed_as_soon_as_a_threshold_holds() -> None:
    judge = ThresholdJudge([parse("requests >= 250, stop as passed")])
    for one in seconds(FAST, FAST):
        judge.add(one)
    assert (judge.stop, judge.outcomes()[0].passed) == (None, False)
    for one in seconds(FAST, FAST, FAST)[20:]:
        judge.add(one)
    assert judge.stop == "passed"
    assert (judge.finish()[0].passed, judge.finish()[0].at_s) == (True, 3.0)


def test_a_run_that_ends_before_it_could_stop_as_passed_has_failed() -> None:
    judge, outcome = judged("requests > 1000, stop as passed", seconds(FAST))
    assert (judge.stop, outcome.passed, outcome.shown) == (None, False, "100")


def test_a_count_that_has_to_be_reached_does_not_stop_a_run_that_has_just_begun() -> None:
    judge, outcome = judged("requests > 250, stop as failed", seconds(FAST, FAST, FAST))
    assert (judge.stop, outcome.passed) == (None, True)
    judge, outcome = judged("requests == 100, stop as failed", seconds(FAST, FAST))
    assert (judge.stop, outcome.at_s) == ("failed", 2.0)


def test_failed_wins_over_passed_in_the_same_second() -> None:
    judge = ThresholdJudge(thresholds_of(["requests > 5, stop as passed", "p95 < 200ms, stop as failed"]))
    for one in seconds(SLOW):
        judge.add(one)
    assert judge.stop == "failed"
    assert [outcome.stopped for outcome in judge.finish()] == [False, True]


MIXED = Window(
    bucket=FIRST,
    width=10,
    users=7,
    iterations=50,
    arrivals=60,
    dropped=6,
    aborted=2,
    steps=[
        StepStats(
            workflow="Shop",
            step="login",
            ok=sketched(*[0.1] * 9),
            failed=sketched(0.3),
            response=sketched(*[0.1] * 9, 0.9),
            statuses={"200": 9, "503": 1},
            errors={"status": 1},
            sent=2_000,
            received=8_000,
        ),
        StepStats(workflow="Shop", step="note", errors={"KeyError": 10}, skipped=3),
    ],
    checks=[
        CheckStats(workflow="Shop", step="fresh", passed=3, failed=1),
        CheckStats(workflow="Shop", step="whole", passed=4),
    ],
    metrics=[
        MetricStats(name="orders", type="counter", total=20.0, count=5),
        MetricStats(name="hits", type="rate", total=3.0, count=4, tags={"shop": "a"}),
        MetricStats(name="hits", type="rate", total=0.0, count=1, tags={"shop": "b"}),
        MetricStats(name="depth", type="gauge", total=4.0, count=1),
        MetricStats(name="cart", type="trend", count=4, values=sketched(1.0, 2.0, 3.0, 4.0)),
    ],
)


@pytest.mark.parametrize(
    ("metric", "limit", "shown"),
    [
        ("p50", "1s", "100 ms"),
        ("max", "1s", "300 ms"),
        ("min", "1s", "100 ms"),
        ("mean", "1s", "120 ms"),
        ("stdev", "1s", "60 ms"),
        ("response max", "1s", "900 ms"),
        ("ok max", "1s", "100 ms"),
        ("ok mean of login", "1s", "100 ms"),
        ("ok mean of cart", "1s", "2.5 s"),
        ("rate", "1/s", "10/s"),
        ("requests", "1", "10"),
        ("requests of note", "1", "0"),
        ("failures", "1", "1"),
        ("failures", "1%", "10 %"),
        ("errors", "1", "11"),
        # ten of the twenty things that could fail raised without being measured
        ("error rate", "1%", "55 %"),
        ("error rate of login", "1%", "10 %"),
        ("rc5xx", "1%", "10 %"),
        ("rc503 of login", "1", "1"),
        ("rc404", "1", "0"),
        ("checks", "1%", "87.5 %"),
        ("checks of fresh", "1%", "75 %"),
        ("failed checks", "1", "1"),
        ("skipped", "1", "3"),
        ("iterations", "1/s", "50/s"),
        ("dropped", "1", "6"),
        ("dropped", "1%", "10 %"),
        ("aborted", "1", "2"),
        ("users", "1", "7"),
        ("bytes", "1MB", "10 KB"),
        ("sent", "1KB", "2 KB"),
        ("received", "1KB/s", "8 KB/s"),
        ("counter orders", "1", "20"),
        ("counter orders", "1/s", "20/s"),
        ("requests of orders", "1", "20"),
        ("rate hits", "1%", "60 %"),
        ("gauge depth", "1", "4"),
        ("trend cart p50", "1", "2.01"),
        ("trend cart max", "1s", "4 s"),
        ("mean of cart", "1s", "2.5 s"),
    ],
)
def test_every_metric_is_read_from_windows(metric: str, limit: str, shown: str) -> None:
    assert judged(f"{metric} != {limit}", [MIXED])[1].shown == shown


def test_what_fails_at_once_does_not_make_successful_calls_faster() -> None:
    dead = step(ok=(0.05,), failed=(0.0001,) * 500)
    assert judged("p95 of browse < 10ms", [window(0, dead)])[1].passed
    _, outcome = judged("ok p95 of browse < 10ms", [window(0, dead)])
    assert (outcome.passed, outcome.shown) == (False, "50 ms")
    _, outcome = judged("ok p95 of browse < 10ms", [window(0, step(failed=(0.0001,)))])
    assert (outcome.passed, outcome.shown) == (False, "no value")
    assert threshold("ok p95", of="browse", below="10ms") == parse("ok p95 of browse < 10ms")


def test_a_part_compares_as_written() -> None:
    good = step(ok=(0.1,) * 43, failed=(0.1,) * 57)
    assert judged("failures <= 57%", [window(0, good)])[1].passed


@pytest.mark.parametrize("text", ["rate > 90/s", "rate > 90/s for 1s", "rate > 90/s over 2s", "rate > 90/s within 3s"])
def test_the_time_between_two_layers_of_workflows_is_no_time_of_the_load(text: str) -> None:
    judge = ThresholdJudge([parse(text)])
    for layer in (FIRST, FIRST + 73):
        for bucket in range(layer, layer + 20):
            judge.add(
                Window(bucket=bucket, steps=[StepStats(workflow="Shop", step="browse", ok=sketched(*[0.1] * 10))])
            )

    (outcome,) = judge.finish()

    assert (outcome.passed, outcome.shown) == (True, "100/s")
