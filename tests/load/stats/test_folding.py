"""Windows added up: over processes, over time, and to the summary of a run."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.stats import tally as folding
from mainstay.load.stats.histogram import Histogram
from mainstay.load.stats.model import CheckStats, Health, MetricStats, StepStats, Window
from mainstay.load.stats.tally import KINDS, STRETCHES, RunTally, from_json, merge_windows, to_json
from tests.load.stats.made import FIRST, header, sketched, step, window, windows

processes = st.tuples(windows(0, 0), windows(1, 0), windows(2, 0))
#: four of one length, so that means of means are exact
moments = st.tuples(*(windows(0, bucket) for bucket in range(4)))


@settings(max_examples=25)
@given(processes)
def test_processes_are_merged_in_any_order_and_grouping(three: tuple[Window, Window, Window]) -> None:
    a, b, c = three
    whole = merge_windows([a, b, c])
    assert merge_windows([c, a, b]) == whole
    assert msgspec.structs.replace(merge_windows([merge_windows([a, b]), c]), users=0) == msgspec.structs.replace(
        whole, users=0
    )
    assert whole.users == a.users + b.users + c.users
    assert (whole.bucket, whole.width, whole.process) == (FIRST, 1, -1)


@settings(max_examples=25)
@given(moments)
def test_buckets_are_merged_in_any_order_and_grouping(four: tuple[Window, ...]) -> None:
    whole = merge_windows(four)
    assert merge_windows(reversed(four)) == whole
    assert merge_windows([merge_windows(four[:2]), merge_windows(four[2:])]) == whole
    assert (whole.users, whole.width, whole.process) == (four[-1].users, 4, 0)


def test_users_of_processes_that_come_later_or_leave_earlier_are_counted_once() -> None:
    first = Window(bucket=FIRST, process=0, users=3)
    both = merge_windows([Window(bucket=FIRST + 1, process=number, users=3 + number) for number in range(2)])
    last = Window(bucket=FIRST + 2, process=1, users=4)

    assert merge_windows([first, both]).users == 7
    assert merge_windows([first, both, last]).users == 4
    assert merge_windows([last, first, both]).users == 4
    assert merge_windows([both, Window(bucket=FIRST + 1, process=2, users=5)]).users == 12


@settings(max_examples=15)
@given(st.lists(windows(0, 0), min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=1, max_size=25))
def test_a_tally_of_tenths_is_that_of_whole_seconds(made: list[Window], order: list[int]) -> None:
    run = [
        msgspec.structs.replace(made[number % len(made)], bucket=FIRST + at, process=-1)
        for at, number in enumerate(order)
    ]
    tenths, seconds = RunTally(header()), RunTally(header())
    for one in run:
        tenths.add(one)
    for at in range(0, len(run), 10):
        seconds.add(merge_windows(run[at : at + 10]))
    # only the peak of the users within a second is lost
    assert msgspec.structs.replace(tenths.summary(), users=0) == msgspec.structs.replace(seconds.summary(), users=0)


def test_windows_survive_the_way_between_processes() -> None:
    made = window(0, step(ok=(0.1, 0.2), failed=(0.3,)))
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(made), type=Window) == made


def test_no_window_cannot_be_merged() -> None:
    with pytest.raises(InvalidInput, match="nothing to merge"):
        merge_windows([])


def test_health_is_the_worst_of_a_process_the_mean_of_its_cpu_and_the_sum_of_its_waits() -> None:
    whole = merge_windows(
        Window(bucket=at, process=0, health={0: Health(lag=lag, cpu=cpu, waited=0.1, files=files, files_limit=10)})
        for at, (lag, cpu, files) in enumerate([(0.1, 1.0, 3), (0.4, 0.5, 2)])
    )
    assert whole.health == {0: Health(lag=0.4, cpu=0.75, waited=0.2, files=3, files_limit=10)}


def test_a_summary_has_the_totals_of_its_windows_and_takes_the_rest() -> None:
    tally = RunTally(header())
    for at in range(20):
        tally.add(window(at, step(ok=(0.1,) * 9, failed=(0.5,)), step("login", ok=(0.2,)), users=at))
    summary = tally.summary(verdict="failed", elapsed_s=4.0, sent_calls=230)
    assert (summary.requests, summary.failed, summary.users, summary.rate) == (220, 20, 19, 55.0)
    assert (summary.verdict, summary.sent_calls, summary.elapsed_s) == ("failed", 230, 4.0)
    assert [one.step for one in summary.steps] == ["login", "browse"]
    browse = summary.steps[1]
    assert (browse.requests, browse.failed, browse.errors, browse.statuses) == (
        200,
        20,
        {"status": 20},
        {"200": 180, "503": 20},
    )
    assert browse.service.p50 == pytest.approx(0.1, rel=0.004)
    assert browse.service.max == 0.5
    assert browse.ok is not None
    assert browse.ok.max == 0.1
    assert summary.ok is not None
    assert (summary.ok.count, summary.ok.max) == (200, 0.2)
    assert sum(n for _, _, n in summary.distribution) == 220
    assert [(point.at_s, point.width_s, point.rate, point.users) for point in summary.points] == [
        (0.0, 1.0, 110.0, 9),
        (1.0, 1.0, 110.0, 19),
    ]
    assert summary.points[0].by_step["Shop.login"][0] == 10.0


def test_a_percentile_over_processes_is_that_of_all_their_values() -> None:
    fast, slow = (0.01,) * 300, (1.0,) * 100
    merged = merge_windows([window(0, step(ok=fast)), msgspec.structs.replace(window(0, step(ok=slow)), process=1)])
    found = Histogram([sketch for sketch in [merged.steps[0].ok] if sketch])
    assert found.percentile(0.74) == pytest.approx(0.01, rel=0.004)
    assert found.percentile(0.76) == 1.0


def test_a_step_that_was_only_skipped_counts_no_calls() -> None:
    tally = RunTally(header())
    tally.add(window(0, StepStats(workflow="Shop", step="browse", skipped=3)))
    (browse,) = tally.summary().steps
    assert (browse.requests, browse.skipped, browse.service.count) == (0, 3, 0)


def test_metrics_are_summed_by_what_they_are() -> None:
    tally = RunTally(header())
    for at in range(10):
        tally.add(
            Window(
                bucket=FIRST + at,
                metrics=[
                    MetricStats(name="orders", type="counter", total=2.0, count=2, low=1.0, high=1.0),
                    MetricStats(name="hits", type="rate", total=1.0, count=4),
                    MetricStats(name="depth", type="gauge", total=float(at), count=1, low=float(at), high=float(at)),
                    MetricStats(name="size", type="trend", count=1, values=sketched(float(at + 1))),
                ],
            )
        )
    found = {metric.name: metric for metric in tally.summary().metrics}
    assert (found["orders"].value, found["orders"].rate) == (20.0, 20.0)
    assert found["hits"].value == 0.25
    assert (found["depth"].value, found["depth"].low, found["depth"].high) == (9.0, 0.0, 9.0)
    assert found["size"].value == 5.5
    assert found["size"].values is not None
    assert found["size"].values.max == 10.0


def test_recent_windows_are_the_last_ones() -> None:
    tally = RunTally(header())
    assert tally.recent(1).steps == []
    for at in range(300):
        tally.add(window(at, step(ok=(float(at + 1),))))
    last = tally.recent(1)
    assert (last.bucket, last.width) == (FIRST + 290, 10)
    assert last.steps[0].ok is not None
    assert (last.steps[0].ok.count, last.steps[0].ok.low) == (10, 291.0)
    assert tally.recent(0.01).width == 1


def test_points_of_a_long_run_are_merged_and_lose_no_call() -> None:
    tally = RunTally(header())
    seconds = STRETCHES * 2 + 7
    for at in range(seconds):
        tally.add(
            Window(bucket=FIRST + at * 10, width=10, steps=[step(ok=(0.1, 0.2), failed=(1.0,) if at == 300 else ())])
        )
    summary = tally.summary()
    points = summary.points
    assert len(points) <= STRETCHES
    assert sum(point.rate * point.width_s for point in points) == pytest.approx(seconds * 2 + 1)
    assert sum(point.width_s for point in points) == pytest.approx(seconds)
    assert [point.at_s for point in points if point.max == 1.0] == [300.0]
    assert all(point.p50 == pytest.approx(0.1, rel=0.004) for point in points if point.max != 1.0)


def test_points_of_an_open_model_have_the_response_time_too() -> None:
    tally = RunTally(header())
    seconds = STRETCHES * 2 + 2
    for at in range(seconds):
        late = 2.0 if at == 300 else 0.0
        waited = step(ok=(0.1,) * 10, response=tuple(0.1 + late for _ in range(10)))
        tally.add(Window(bucket=FIRST + at * 10, width=10, steps=[waited, step("login", ok=(0.2,))]))
    summary = tally.summary()
    assert all(point.max == 0.2 for point in summary.points)
    waits = {point.at_s: point.response for point in summary.points}
    assert all(found is not None and found.p50 == pytest.approx(0.1, rel=0.004) for found in waits.values())
    # of the two seconds that were merged into this one, one had to wait
    assert waits[300.0] is not None
    assert (waits[300.0].p99, waits[300.0].max) == (pytest.approx(2.1, rel=0.004), 2.1)
    by_step = next(point.by_step for point in summary.points if point.at_s == 300.0)
    assert by_step["Shop.browse"][4:] == pytest.approx([0.1, 2.1, 2.1], rel=0.004)
    assert len(by_step["Shop.login"]) == 4
    assert sum(n for _, _, n in summary.response_distribution) == seconds * 10
    assert summary.response_distribution[-1][2] == 10


def test_a_closed_model_has_no_response_times() -> None:
    tally = RunTally(header())
    tally.add(window(0, step(ok=(0.1,))))
    summary = tally.summary()
    assert (summary.response, summary.points[0].response, summary.response_distribution) == (None, None, [])


@pytest.mark.parametrize("waited", [(), tuple(0.001 * 1.05**n for n in range(100))])
def test_memory_of_a_tally_is_flat(monkeypatch: pytest.MonkeyPatch, waited: tuple[float, ...]) -> None:
    most = 60
    monkeypatch.setattr(folding, "STRETCHES", most)
    made = [
        step(ok=tuple(0.001 * 1.05**n for n in range(100)), response=waited),
        step("login", ok=(0.1, 0.2, 0.3)),
    ]

    def grown(tally: RunTally, first: int, seconds: int) -> int:
        for at in range(first, first + seconds):
            tally.add(Window(bucket=FIRST + at * 10, width=10, steps=made))
        return tracemalloc.get_traced_memory()[0]

    tally = RunTally(header())
    tracemalloc.start()
    try:
        full = grown(tally, 0, most)
        later = grown(tally, most, most * 3)
    finally:
        tracemalloc.stop()
    # four times the run; without merging, four times the memory
    assert later < full * 1.5


def test_kinds_of_errors_and_reasons_are_bounded() -> None:
    tally = RunTally(header())
    for at in range(KINDS * 2):
        tally.add(
            Window(
                bucket=FIRST + at,
                steps=[StepStats(workflow="Shop", step="browse", errors={f"error {at}": 1})],
                checks=[CheckStats(workflow="Shop", step="fresh", failed=1, reasons={f"token {at}": 1})],
                examples={f"error {at}": "said"},
            )
        )
    summary = tally.summary()
    for counts in (summary.steps[0].errors, summary.checks[0].reasons, summary.errors):
        assert len(counts) == KINDS + 1
        assert next(iter(counts.items())) == ("(others)", KINDS)
    assert len(summary.examples) == KINDS


def test_a_summary_comes_back_from_its_json() -> None:
    tally = RunTally(header())
    tally.add(window(0, step(ok=(0.1, 0.2), failed=(0.3,))))
    summary = tally.summary(ended="finished")
    text = to_json(summary)
    assert msgspec.json.decode(text)["requests"] == 3
    assert from_json(text) == summary
    # as an earlier version wrote it
    old = msgspec.json.decode(text)
    for field in ("ok", "response_distribution"):
        del old[field]
    for point in old["points"]:
        del point["response"]
    assert from_json(msgspec.json.encode(old)).points == summary.points
    with pytest.raises(InvalidInput, match="this is not the summary of a load test"):
        from_json(b'{"requests": 3}')
