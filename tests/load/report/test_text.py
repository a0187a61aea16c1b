"""The summary in a terminal: the verdict first, every number whole, from 60 columns on."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from mainstay.load.report.page import load_html
from mainstay.load.report.text import show_summary
from mainstay.load.stats.model import OutputOutcome, SliceReport, Summary, ThresholdOutcome, Trust
from tests.load.report.runs import a_header, a_step, a_summary, a_tag, an_empty_summary, an_open_summary, latency


def shown(summary: Summary, width: int = 120) -> str:
    console = Console(width=width, highlight=False, file=io.StringIO())
    show_summary(summary, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


COPIED = ("written: ", "recorded: ")


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 140, 200])
def test_it_fits_and_no_number_is_cut(width: int) -> None:
    big = a_step("a_step_with_a_name_that_is_rather_long", [0.0123] * 3, requests=123_456_789, failed=12_345_678)
    for summary in (a_summary(), an_open_summary(), an_empty_summary(), a_summary(steps=[big, big])):
        text = shown(summary, width)

        # what is there to be copied is never folded
        told = [line for line in text.splitlines() if "mainstay load" not in line and not line.startswith(COPIED)]
        assert max(map(cell_len, told)) <= width
        assert "…" not in text
    assert "123,456,789" in shown(a_summary(steps=[big]), width)


@pytest.mark.parametrize("width", [24, 30, 40, 50])
def test_a_narrow_table_keeps_its_names_and_leaves_out_columns(width: int) -> None:
    lines = [line.split() for line in shown(a_summary(), width).splitlines()]

    heads = next(words for words in lines if words[:1] == ["step"])
    (login,) = (words for words in lines if words[:2] == ["login", "4,000"])
    assert heads[:2] == ["step", "requests"]
    assert ("p99" in heads) == (width >= 40)
    assert len([word for word in login if word not in ("ms", "s")]) == len(heads)


def test_the_verdict_comes_first_and_says_why() -> None:
    lines = shown(an_open_summary()).splitlines()

    assert lines[0] == "shop failed, NOT TRUSTWORTHY"
    assert lines[1].strip() == "process 1 used 97 % of its core for 12 s: add --processes or machines"
    assert lines[2].strip() == "p95 of browse < 20ms: 81 ms"
    assert lines[3].strip() == "counter orders > 5: no value"
    assert shown(a_summary()).splitlines()[0] == "shop passed"


@pytest.mark.parametrize(
    ("ended", "word"),
    [
        ("finished", "passed"),
        ("failed: a generator was lost", "failed"),
        ("interrupted", "interrupted"),
        ("cancelled: enough", "interrupted"),
        ("running", "running"),
        ("lost: the recording has 3 s and no end", "lost"),
    ],
)
def test_only_what_came_to_its_end_has_passed(ended: str, word: str) -> None:
    lines = shown(a_summary(ended=ended, verdict="passed")).splitlines()

    assert lines[0] == f"shop {word}"
    assert f" {word}</span></h1>" in load_html(a_summary(ended=ended, verdict="passed"))


def test_a_run_that_a_threshold_ended_as_passed_has_passed() -> None:
    enough = ThresholdOutcome(text="count > 10, stop as passed", passed=True, stopped=True)

    text = shown(a_summary(ended="stopped by a threshold", thresholds=[enough]))

    assert text.splitlines()[0] == "shop passed"


def test_where_many_failed_the_times_of_the_successful_ones_are_shown_as_well() -> None:
    fast, good = [0.0001] * 15_163, [0.05] * 46
    dead = a_step("get", fast + good, failed=len(fast), ok=latency(good))
    tag = a_tag("area", "shop", fast + good, failed=len(fast), ok=latency(good))
    gone = a_step("gone", fast, failed=len(fast))
    few = a_step("few", [0.02] * 1000, failed=5, ok=latency([0.03] * 995))
    summary = a_summary(
        steps=[dead, gone, few], by_tag=[tag], requests=len(fast + good), failed=len(fast), ok=latency(good)
    )

    text, page = shown(summary), load_html(summary)

    rows = [line.split() for line in text.splitlines()]
    alone = [row for row in rows if row[:1] == ["ok"] and row[1:2] != ["time"]]
    assert [row[1:3] for row in alone] == [["50", "ms"], ["–", "–"], ["50", "ms"]]
    assert "ok time   p50 50 ms, p95 50 ms, p99 50 ms, max 50 ms" in text
    assert "successful requests only" in text
    assert page.count("&nbsp;&nbsp;ok</span>") == 3
    assert "<dt>Successful p95</dt><dd>50 ms<small>" in page
    for one in (shown(a_summary(steps=[few])), load_html(a_summary(steps=[few]))):
        assert "successful requests only" not in one


def test_an_open_model_shows_both_times_and_says_which_is_which() -> None:
    text = shown(an_open_summary())

    assert "  response" in text
    assert "from the moment a request was due" in text
    assert "4,040 due, 40 dropped" in text
    assert "aborted   2 calls in progress at the end" in text
    assert "from the moment a request was due" not in shown(a_summary())


def test_what_went_wrong_is_told_with_an_example_each() -> None:
    text = shown(a_summary())

    assert "66  status 500" in text
    assert "for example: POST http://127.0.0.1:8080/login answered 500" in text
    assert "3 × empty" in text


def test_each_step_that_had_an_error_has_an_example_of_its_own() -> None:
    one, other = (
        a_step(name, [0.1] * 9, failed=count, errors={"closed 1011": count}, examples={"closed 1011": said})
        for name, count, said in (("ask", 2, "ws://a closed it"), ("talk", 3, "ws://b closed it"))
    )
    summary = a_summary(steps=[one, other], errors={"closed 1011": 5}, examples={"closed 1011": "ws://a closed it"})

    lines = [line.strip() for line in shown(summary).splitlines()]

    assert "in talk (3), for example: ws://b closed it" in lines
    assert "in ask (2), for example: ws://a closed it" in lines
    assert "ws://b closed it" in load_html(summary)


def test_metrics_are_told_by_their_type() -> None:
    lines = {line.split()[0]: line for line in shown(a_summary()).splitlines() if line}

    assert lines["orders"].endswith("counter  1,234, 20.6/s")
    assert lines["hits"].endswith("83 % of 4,000")
    assert lines["stock"].startswith("stock {shop=north}")
    assert lines["stock"].endswith("17 at the end, 3 to 99")
    assert "p95 3.4" in lines["cart"]


def test_what_was_not_run_and_what_was_not_written_is_said() -> None:
    text = shown(an_open_summary())

    assert "Checkout: not run, Shop, which it depends on, failed in setup" in text
    assert "Shop teardown: failed: KeyError" in text
    assert "output html x/y.html: the disk is full" in text
    assert "recorded: shop.ndjson.zst" in text
    assert "mainstay load report shop.ndjson.zst --html report.html" in text
    drawn = shown(a_summary(outputs=[OutputOutcome(name="html shop.html"), OutputOutcome(name="live view")]))
    assert "written: html shop.html" in drawn
    assert "live view" not in drawn
    assert "load report" not in drawn


def test_a_run_without_a_request_says_what_it_died_of() -> None:
    assert shown(an_empty_summary()).splitlines()[1].strip() == "failed: setup of Shop raised ValueError: no shop"
    assert "nothing was measured" in shown(an_empty_summary(ended="finished"))


def test_a_threshold_that_ended_the_run_says_when() -> None:
    broken = ThresholdOutcome(text="error rate < 1%, stop as failed", passed=False, shown="4 %", at_s=7, stopped=True)

    assert "✗  error rate < 1%, stop as failed  4 %, at 7s, ended the run" in shown(a_summary(thresholds=[broken]))


def test_what_a_target_says_cannot_change_the_terminal() -> None:
    text = shown(a_summary(errors={"x\x1b[2J": 1}, examples={"x\x1b[2J": "\x1b]0;owned\x07\nnext line"}))

    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_step_that_never_came_to_a_request_has_no_times() -> None:
    none = a_step("browse", [0.1])
    none.requests = none.service.count = 0

    line, *_ = (one for one in shown(a_summary(steps=[none])).splitlines() if one.startswith("browse "))

    assert line.split()[4:] == ["–"] * 5


def test_a_run_that_failed_already_is_not_advised_how_to_fail() -> None:
    advised = "no threshold limits that"

    assert advised in shown(a_summary(thresholds=[], header=a_header(thresholds=[])))
    assert advised not in shown(a_summary(thresholds=[], header=a_header(thresholds=[]), ended="failed: Shop"))


def test_arrivals_are_told_with_why_they_were_dropped() -> None:
    for dropped, unbegun, told in (
        (0, 0, "100 due, none dropped"),
        (50, 0, "100 due, 50 dropped: too many were in flight"),
        (50, 50, "100 due, 50 dropped: no user could begin"),
        (50, 40, "100 due, 40 dropped: no user could begin, 10 dropped: too many were in flight"),
    ):
        assert told in shown(an_open_summary(arrivals=100, dropped=dropped, unbegun=unbegun))


def test_iterations_are_told_beside_those_that_were_asked_for_if_they_are_fewer() -> None:
    for asked, told in (
        ([40], "20 of 40 iterations"),
        ([30, 30], "20 of 60 iterations"),
        ([20], "20 iterations"),
        ([40, None], "20 iterations"),  # whose they are is not known
        ([], "20 iterations"),
    ):
        header = a_header(workflows=[{"name": f"W{at}", "iterations": one} for at, one in enumerate(asked)])
        summary = a_summary(header=header, iterations=20)
        assert f"at most, {told}" in shown(summary)
        assert f"at most; {told}" in load_html(summary)


def test_what_is_not_trustworthy_is_not_blamed_on_the_generator_alone() -> None:
    told = shown(an_open_summary(trust=Trust(ok=False, reasons=["5 of 9 arrivals found no user that could begin"])))

    assert "5 of 9 arrivals found no user that could begin" in told
    assert "generator" not in told


def test_steps_that_raised_without_a_request_are_told_beside_those_that_failed() -> None:
    whole = a_summary()
    steps = [msgspec.structs.replace(one, raised=7) for one in whole.steps[:1]]
    tags = [a_tag("area", "checkout", [0.1] * 7, raised=6)]
    summary = a_summary(steps=steps, by_tag=tags, requests=93, failed=0, raised=7, error_rate=0.07)

    text, page = shown(summary), load_html(summary)

    assert "raised    7 times, without a request; error rate 7 %" in text
    assert f"{steps[0].step}: raised 7 times, without a request" in text
    assert "without a request; error rate 7 %" in page
    assert "raised 7×" in page
    assert "{area:checkout}: raised 6 times, without a request" in text
    assert "raised 6×" in page
    assert "raised" not in shown(whole)


def test_calls_that_were_sent_again_and_unexpected_messages_are_told() -> None:
    summary = a_summary(resent_calls=7, unexpected=1)

    for text in (shown(summary), load_html(summary)):
        assert "7 calls that the server had closed or refused without a response" in text
        assert "1 message that no call was waiting for, discarded" in text
    assert "sent again" not in shown(a_summary())
    assert "unexpected" not in shown(a_summary())


@pytest.mark.parametrize("width", [60, 120])
def test_numbers_by_tag_are_shown_if_steps_have_tags(width: int) -> None:
    summary = a_summary(by_tag=[a_tag("area", "checkout", [0.1] * 7, failed=3), a_tag("a", "<i>", [0.25] * 5)])

    lines, page = shown(summary, width).splitlines(), load_html(summary)

    first, second = [line.split() for line in lines[lines.index("by tag") :] if line.startswith("{")]
    assert first[:3] == ["{area:checkout}", "7", "3"]
    assert second[:3] == ["{a:'<i>'}", "5", "0"]
    assert first[-6:] == ["100", "ms"] * 3
    assert max(cell_len(line) for line in lines if "mainstay load" not in line) <= width
    assert "<h2>Tags</h2>" in page
    assert "<code>{a:&#39;&lt;i&gt;&#39;}</code>" in page
    assert "login, browse" in page
    assert "by tag" not in shown(a_summary(), width)
    assert "<h2>Tags</h2>" not in load_html(a_summary())


def nodes() -> list[SliceReport]:
    return [
        SliceReport(slice=0, node="n1", processes=4, requests=123_456_789, windows=600, clock_doubt_s=0.0002),
        SliceReport(
            slice=1, node="n2", processes=4, requests=40, failed=3, loss="its node was closed: killed", gap_s=4.2
        ),
        SliceReport(slice=1, token=2, node="n3", processes=4, begin_s=12.0, requests=60, start_late_s=0.0012),
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_part_of_each_node_fits_and_a_loss_is_told_with_its_gap(width: int) -> None:
    text = shown(a_summary(slices=nodes()), width)
    flat = " ".join(text.split())

    assert max(map(cell_len, text.splitlines())) <= max(width, 60)
    assert "123,456,789" in text
    assert "n2 (slice 1) was lost: its node was closed: killed; its load was missing for 4.2s" in flat
    assert "n3 (slice 1) replaced a lost node, from 12s of the plan on" in flat
    assert ("±200 µs" in text) == (width >= 60)


def test_windows_that_came_late_are_shown_with_their_node_if_there_were_any() -> None:
    late = [*nodes(), SliceReport(slice=2, node="n4", processes=1, windows=900, late_windows=123)]

    text, page = shown(a_summary(slices=late)), load_html(a_summary(slices=late))

    assert "123" in next(line for line in text.splitlines() if "n4 (slice 2)" in line)
    assert "late windows" in text
    assert "late windows" not in shown(a_summary(slices=nodes()))
    assert '<td class="num">123</td>' in page


def test_of_very_many_nodes_the_lost_ones_are_shown() -> None:
    many = [SliceReport(slice=number, node=f"n{number}", processes=1) for number in range(300)]
    many[299] = msgspec.structs.replace(many[299], loss="silent")

    text = shown(a_summary(slices=many))

    assert "n299 (slice 299)" in text
    assert "260 more, in the reports as JSON and HTML" in text
    assert "300 nodes" in text


def test_a_page_has_the_part_of_each_node() -> None:
    page = load_html(a_summary(slices=nodes()))

    assert "<h2>Nodes</h2>" in page
    assert "✗ n2 (slice 1)" in page
    assert "n2 (slice 1) was lost: its node was closed: killed; its load was missing for 4.2s" in page
    assert "<h2>Nodes</h2>" not in load_html(a_summary())
