"""Two runs side by side: what counts as a change, and when runs cannot be compared."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from mainstay.load.report.changes import MetricChange, percentile_range
from mainstay.load.report.compare import Comparison, Run, compare
from mainstay.load.report.compare_page import comparison_html
from mainstay.load.report.compare_text import conclusion, show_comparison
from mainstay.load.stats.model import Summary
from tests.load.report.runs import a_header, a_step, a_summary, an_empty_summary, an_open_summary, binned, latency


def a_run(values: list[float], *, failed: int = 0, elapsed: float = 60.0, **given: Any) -> Summary:
    step = a_step("browse", values, failed=failed, elapsed=elapsed)
    return a_summary(
        **{
            "requests": len(values),
            "failed": failed,
            "rate": len(values) / elapsed,
            "elapsed_s": elapsed,
            "service": latency(values),
            "distribution": binned(values),
            "steps": [step],
            **given,
        }
    )


def ramp(start: float, *, count: int = 2000) -> list[float]:
    """Evenly from `start` to twice that."""
    return [start * (1 + place / count) for place in range(count)]


def of_all(found: Comparison) -> dict[str, MetricChange]:
    return {one.metric: one for one in found.steps[0].changes}


def test_a_run_is_as_itself() -> None:
    found = compare(a_summary(), a_summary())

    assert (found.better, found.worse, found.exit_code, found.comparable) == (0, 0, 0, True)
    assert {one.judgement for step in found.steps for one in step.changes} == {"same"}


def test_what_is_slower_beyond_the_tolerance_is_worse_and_the_way_back_is_better() -> None:
    fast, slow = a_run(ramp(0.02)), a_run(ramp(0.03))

    worse, better = compare(fast, slow), compare(slow, fast)

    assert {name: one.judgement for name, one in of_all(worse).items()} == {
        "rate": "same",
        "failed": "same",
        "mean": "worse",
        "p50": "worse",
        "p95": "worse",
        "p99": "worse",
        "max": "worse",
    }
    assert of_all(worse)["p50"].change == pytest.approx(0.5)
    assert worse.exit_code == 1
    assert (better.worse, better.exit_code) == (0, 0)
    assert better.better == worse.worse


def test_the_tolerance_decides() -> None:
    before, after = a_run(ramp(0.02)), a_run(ramp(0.0224))

    assert compare(before, after).exit_code == 1
    assert compare(before, after, tolerance=0.15).exit_code == 0


def test_fewer_requests_a_second_are_worse() -> None:
    found = of_all(compare(a_run(ramp(0.02, count=4000)), a_run(ramp(0.02, count=2000))))

    assert found["rate"].judgement == "worse"
    assert found["rate"].change == pytest.approx(-0.5)


def test_a_percentile_on_the_edge_of_a_gap_differs_by_chance() -> None:
    """One run has 0.9 % slow ones and the other 1.1 %: their p99 are worlds apart, and the runs are alike."""
    before = a_run([0.02] * 1982 + [1.5] * 18)
    after = a_run([0.02] * 1978 + [1.5] * 22)

    found = of_all(compare(before, after))["p99"]

    assert found.change == pytest.approx(74)
    assert (found.judgement, found.note) == ("same", "within chance")


def test_a_change_with_too_few_requests_is_unclear_and_never_the_same() -> None:
    """A tenth of 60 requests is slow in B: too few for p95 and p99, not too few for the mean and the maximum."""
    usual = ramp(0.02, count=60)
    found = compare(a_run(usual), a_run(usual[:54] + [9.0] * 6))

    assert {name: (one.judgement, one.note) for name, one in of_all(found).items()} == {
        "rate": ("same", ""),
        "failed": ("same", ""),
        "mean": ("worse", ""),
        "p50": ("same", ""),
        "p95": ("unclear", "too few requests"),
        "p99": ("unclear", "too few requests"),
        "max": ("worse", ""),
    }
    assert found.exit_code == 1


def test_runs_whose_only_changes_are_unclear_give_no_answer() -> None:
    before, after = [0.02] * 100, [0.02] * 98 + [0.09] * 2

    found = compare(a_run(before), a_run(after))

    assert (found.worse, found.unclear, found.exit_code) == (0, 2, 97)
    assert conclusion(found) == "Cannot tell: 2 numbers changed with too few requests to judge"
    assert "pill busy" in comparison_html(found, a_run(before), a_run(after))
    assert compare(a_run(after), a_run(before)).exit_code == 0  # what may have got better does not matter


@pytest.mark.parametrize("binned_too", [True, False])
def test_a_maximum_counts_if_several_requests_were_slower_than_the_slowest_before(binned_too: bool) -> None:
    def judged(before: list[float], after: list[float]) -> str:
        runs = [a_run(one, **({} if binned_too else {"distribution": []})) for one in (before, after)]
        return of_all(compare(*runs))["max"].judgement

    usual = [0.02] * 2000

    assert judged(usual, [*usual[:-1], 0.9]) == "same"  # one request is chance
    assert judged(usual, [*usual[:-30], *[0.9] * 30]) == "worse"
    assert judged([*usual[:-30], *[0.9] * 30], usual) == "better"
    assert judged(usual[:100], [*usual[:-30], *[0.9] * 30]) == "same"  # twenty times the requests find slower ones


def test_a_mean_counts_if_the_spread_of_the_times_does_not_explain_it() -> None:
    def judged(before: list[float], after: list[float]) -> tuple[str, str]:
        found = of_all(compare(a_run(before), a_run(after)))["mean"]
        return found.judgement, found.note

    assert judged(ramp(0.02), ramp(0.024)) == ("worse", "")
    assert judged([0.02] * 200, [0.02] * 199 + [2.0]) == ("same", "within chance")
    assert judged([0.02] * 29, [0.04] * 29) == ("unclear", "too few requests")


def test_a_change_of_the_failures_of_few_requests_is_unclear() -> None:
    found = compare(a_run([0.02] * 10), a_run([0.02] * 10, failed=2))

    assert (of_all(found)["failed"].judgement, of_all(found)["failed"].note) == ("unclear", "too few requests")
    assert found.exit_code == 97


def test_failures_count_when_they_are_more_than_chance_and_more_than_a_trifle() -> None:
    def judged(before: int, after: int, count: int) -> tuple[str, str]:
        runs = [a_summary(requests=count, failed=failed) for failed in (before, after)]
        found = of_all(compare(*runs))["failed"]
        return found.judgement, found.note

    assert judged(0, 100, 2000) == ("worse", "")
    assert judged(100, 0, 2000) == ("better", "")
    assert judged(1, 3, 2000) == ("same", "within chance")
    assert judged(0, 20, 100_000) == ("same", "less than 0.1 % of all")


def test_histograms_of_steps_are_used_where_they_are_known() -> None:
    before, after = [0.02] * 1982 + [1.5] * 18, [0.02] * 1978 + [1.5] * 22
    runs = [Run(summary=a_run(one), service={"": binned(one), "Shop.browse": binned(one)}) for one in (before, after)]

    known, unknown = compare(*runs).steps[1], compare(runs[0].summary, runs[1].summary).steps[1]

    assert [one.judgement for one in known.changes if one.metric == "p99"] == ["same"]
    assert [one.judgement for one in unknown.changes if one.metric == "p99"] == ["worse"]


def test_response_times_are_compared_in_open_models() -> None:
    assert {"response p50", "response p95", "response p99"} <= of_all(
        compare(an_open_summary(), an_open_summary())
    ).keys()
    assert "response p50" not in of_all(compare(an_open_summary(), a_summary()))


def test_runs_that_were_loaded_otherwise_or_cannot_be_trusted_are_not_comparable() -> None:
    found = compare(an_open_summary(), a_run(ramp(0.02), elapsed=10.0, ended="cancelled by ops"))

    assert not found.comparable
    assert found.reasons == [
        "A is not trustworthy: process 1 used 97 % of its core for 12 s: add --processes or machines",
        "B did not finish: cancelled by ops",
        "Shop ran under different load: 2,000/s in A, 50 users in B",
        "only A has the workflow Checkout",
        "A took 1m and B 10s",
    ]


def test_numbers_of_runs_that_are_not_comparable_are_shown_and_not_judged() -> None:
    before, longer = a_run(ramp(0.02)), a_run(ramp(0.03), elapsed=100.0)
    found = compare(before, longer)
    console = Console(width=80, highlight=False, file=io.StringIO())

    show_comparison(found, console)

    assert (found.comparable, found.better, found.worse, found.exit_code) == (False, 0, 0, 97)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert shown.startswith("Cannot tell: the runs are not comparable\n  A took 1m and B 1m40s")
    assert "? cannot tell, runs not comparable" in shown
    page = comparison_html(found, before, longer)
    assert "! Cannot tell: the runs are not comparable" in page
    assert "worse" not in shown + page.split("</style>")[-1]


def test_steps_and_workflows_of_one_run_only_are_named() -> None:
    header = a_header(workflows=[{"name": "Other", "model": "1 user"}])

    found = compare(a_summary(), a_run(ramp(0.02), header=header))

    assert (found.only_a, found.only_b) == (["Shop.login"], [])
    assert "only A has the workflow Shop" in found.reasons
    assert "only B has the workflow Other" in found.reasons


def test_a_run_that_measured_nothing_is_not_comparable() -> None:
    assert compare(a_summary(), an_empty_summary()).exit_code == 97
    assert compare(an_empty_summary(), a_summary()).exit_code == 97


def test_the_range_of_a_percentile_holds_it_and_narrows_with_more_requests() -> None:
    few, many = (percentile_range(binned(ramp(0.02, count=count)), 0.9) for count in (100, 10_000))

    assert few[0] < many[0] < 0.038 < many[1] < few[1]


def test_it_is_told_in_a_terminal_and_as_data() -> None:
    found = compare(a_run(ramp(0.02)), a_run(ramp(0.03)))
    console = Console(width=80, highlight=False, file=io.StringIO())

    show_comparison(found, console)

    assert isinstance(console.file, io.StringIO)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert lines[0] == "B compared with A: 10 numbers got worse"
    assert "p50 30 ms 45 ms +50 % ✗ worse" in lines
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found
