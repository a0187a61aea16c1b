"""Two runs side by side: what counts as a change, and when runs cannot be compared."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from mainstay.load.stats.model import Summary
from mainstay.report.load.changes import Change, percentile_range
from mainstay.report.load.compare import Comparison, Run, compare
from mainstay.report.load.compare_page import comparison_html
from mainstay.report.load.compare_text import show_comparison
from tests.report.load.runs import a_header, a_step, a_summary, an_empty_summary, an_open_summary, binned, latency


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


def of_all(found: Comparison) -> dict[str, Change]:
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
        "p50": "worse",
        "p95": "worse",
        "p99": "worse",
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


def test_few_requests_are_not_judged_by_their_tail() -> None:
    found = of_all(compare(a_run(ramp(0.02, count=100)), a_run(ramp(0.06, count=100))))

    assert (found["p99"].judgement, found["p99"].note) == ("same", "too few requests")
    assert found["p50"].judgement == "worse"


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

    known = compare(*runs).steps[1].changes[-1]
    unknown = compare(runs[0].summary, runs[1].summary).steps[1].changes[-1]

    assert (known.metric, known.judgement) == ("p99", "same")
    assert unknown.judgement == "worse"


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
        "B did not come to its end: cancelled by ops",
        "Shop was loaded otherwise: 2,000/s in A, 50 users in B",
        "only A has the workflow Checkout",
        "A took 1m, and B 10s",
    ]


def test_of_runs_that_cannot_be_compared_nothing_is_said_but_what_got_worse() -> None:
    before, longer = a_run(ramp(0.02)), a_run(ramp(0.02, count=10_000), elapsed=100.0)
    same, worse = compare(before, longer), compare(before, a_run(ramp(0.03), elapsed=100.0))
    console = Console(width=80, highlight=False, file=io.StringIO())

    show_comparison(same, console)

    assert (same.comparable, same.exit_code) == (False, 97)
    assert (worse.comparable, worse.exit_code) == (False, 1)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith(
        "Nothing can be said: the runs cannot be compared\nNOT COMPARABLE\n  A took"
    )
    assert "Nothing can be said" in comparison_html(same, before, longer)


def test_steps_and_workflows_of_one_run_only_are_named() -> None:
    header = a_header(workflows=[{"name": "Other", "model": "1 user"}])

    found = compare(a_summary(), a_run(ramp(0.02), header=header))

    assert (found.only_a, found.only_b) == (["Shop.login"], [])
    assert "only A has the workflow Shop" in found.reasons
    assert "only B has the workflow Other" in found.reasons


def test_a_run_that_measured_nothing_is_worse_than_one_that_did() -> None:
    assert compare(a_summary(), an_empty_summary()).exit_code == 1
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
    assert lines[0] == "B beside A: 6 numbers got worse"
    assert "p50 30 ms 45 ms +50 % ✗ worse" in lines
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found
