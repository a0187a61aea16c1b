"""The page of a load test: whole, safe, readable without script and colours, whatever the run was."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from mainstay.load.report.compare import compare
from mainstay.load.report.compare_page import comparison_html
from mainstay.load.report.limits import limits_of, marks_for
from mainstay.load.report.page import load_html
from mainstay.load.stats.model import Summary, ThresholdOutcome, Trust
from tests.load.report.runs import (
    a_header,
    a_step,
    a_summary,
    an_empty_summary,
    an_open_summary,
    binned,
    drawn,
    latency,
    points,
)

_VOID = {"meta", "br", "input"}


class Read(HTMLParser):
    """Complains about a tag that is not closed where it should be, and keeps what matters here."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def one_request() -> Summary:
    step = a_step("login", [0.02])
    return a_summary(
        requests=1, failed=0, steps=[step], service=latency([0.02]), distribution=binned([0.02]), points=points(1)
    )


def all_alike() -> Summary:
    """Every request took no time at all, as a clock may say."""
    step = a_step("login", [0.0] * 5)
    still = points(3)
    for one in still:
        one.p50 = one.p90 = one.p95 = one.p99 = one.max = 0.0
        one.rate = one.failed = 0.0
    return a_summary(
        requests=5, failed=0, steps=[step], service=latency([0.0] * 5), distribution=[(0.0, 0.0, 5)], points=still
    )


def of_before() -> Summary:
    """An open run as an earlier version wrote it: without the curves of the response time."""
    return an_open_summary(response_distribution=[], points=points(steps=("Shop.browse",)))


def mixed() -> Summary:
    """One workflow at a rate, another with users."""
    made = points(9, steps=("Shop.login",))
    for one, other in zip(made, points(9, steps=("Shop.browse",), late=1.0), strict=True):
        one.by_step |= other.by_step
        one.response = other.response
    values = drawn(3)
    steps = [a_step("login", values), a_step("browse", values, response=latency(values))]
    return an_open_summary(points=made, steps=steps)


PAGES: dict[str, Any] = {
    "closed": a_summary,
    "open": an_open_summary,
    "of an earlier version": of_before,
    "both open and closed": mixed,
    "without a request": an_empty_summary,
    "of one request": one_request,
    "of no time": all_alike,
    "without points": lambda: a_summary(points=[]),
    "with a pause": lambda: a_summary(points=paused()),
}


def paused() -> list[Any]:
    made = points(9)
    for one in made[3:5]:
        one.p50 = one.p90 = one.p95 = one.p99 = one.max = None
        one.rate = 0.0
        one.by_step = {}
    return made


@pytest.mark.parametrize("which", PAGES)
def test_a_page_is_well_formed_and_asks_for_nothing_else(which: str) -> None:
    summary = PAGES[which]()
    for page in (load_html(summary), comparison_html(compare(summary, summary), summary, summary)):
        read = Read(page)

        assert not {"link", "img", "iframe"} & {tag for tag, _ in read.tags}
        assert not {"src", "href", "onclick"} & {name for _, attrs in read.tags for name in attrs}
        assert not re.search(r"url\(|@import", page)
        assert not re.search(r"\b(nan|inf)\b", page)
        ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
        assert len(ids) == len(set(ids))
        for chart in read.every("svg"):
            if chart.get("aria-hidden") is None:
                assert set((chart["aria-labelledby"] or "").split()) <= set(ids)
        assert page.count("<title id=") == page.count("<desc id=") == page.count('role="img"')


@pytest.mark.parametrize("which", PAGES)
def test_everything_drawn_lies_within_its_drawing(which: str) -> None:
    for width, height, inner in re.findall(
        r'<svg viewBox="0 0 (\d+) (\d+)" role="img"(.*?)</svg>', load_html(PAGES[which]()), re.DOTALL
    ):
        for path in re.findall(r' d="M([\d. L-]+)', inner):
            for x, y in (place.split() for place in path.split("L")):
                assert 0 <= float(x) <= float(width)
                assert 0 <= float(y) <= float(height)


def test_only_its_own_script_may_run() -> None:
    page = load_html(a_summary())

    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_what_a_test_or_its_target_names_cannot_break_the_page() -> None:
    evil = "</svg><script>alert(1)</script>\"'&"
    summary = an_open_summary(
        header=a_header(name=evil, run=evil, tags={evil: evil}, workflows=[{"name": evil, "model": evil}]),
        steps=[a_step(evil, [0.1], workflow=evil, errors={evil: 1}), a_step(evil * 2, [0.1])],
        points=points(3, steps=(evil, evil * 2)),
        errors={evil: 1},
        examples={evil: evil},
        thresholds=[ThresholdOutcome(text=evil, passed=False, shown=evil)],
        trust=Trust(ok=False, reasons=[evil]),
        skipped={evil: evil},
        stream=evil,
        ended=evil,
    )

    page = load_html(summary)

    assert "<script>alert" not in page
    Read(page)
    Read(comparison_html(compare(summary, a_summary()), summary, a_summary()))


def test_a_limit_is_drawn_where_its_threshold_belongs() -> None:
    held = [
        ThresholdOutcome(text="p95 < 300ms", passed=True, value=0.08),
        ThresholdOutcome(text="p95 of browse < 200ms, stop as failed", passed=True, value=0.08),
        ThresholdOutcome(text="rate > 100/s", passed=True, value=133.0),
        ThresholdOutcome(text="error rate < 1%", passed=True, value=0.008),
    ]
    page = load_html(a_summary(thresholds=held))

    def names(title: str) -> list[str]:
        (inner,) = set(re.findall(rf'<title id="[\w-]+">{title}</title>(.*?)</svg>', page, re.DOTALL)[:1])
        return re.findall(r">([^<>]*(?:&lt;|&gt;)[^<>]*)</text>", inner)

    assert names("Service time over time") == ["p95 &lt; 300ms"]
    assert names("Shop.browse") == ["p95 &lt; 200ms"]
    assert names("Shop.login") == []
    assert names("Requests a second") == ["rate &gt; 100/s"]
    assert page.count('class="gauge"') == 4


def titles(page: str) -> list[str]:
    """Of its charts, in order; one with two scales once."""
    return list(dict.fromkeys(re.findall(r'<title id="[\w-]+">([^<]*)</title>', page)))


def test_an_open_model_is_drawn_by_its_response_time_first() -> None:
    limits = [
        ThresholdOutcome(text="response p95 of browse < 3s", passed=True, value=2.1),
        ThresholdOutcome(text="ok p95 of browse < 1s", passed=True, value=0.1),
    ]
    page = load_html(an_open_summary(thresholds=limits))

    assert titles(page) == [
        "Response time over time",
        "Service time over time",
        "Requests a second",
        "Active users",
        "Failed requests over time",
        "Distribution of the response time",
        "Distribution of the service time",
        "Time by percentile",
    ]
    # the two seconds that requests were late are in one curve, and not in the other
    response, service = re.findall(r"(?:Response|Service) time over time</title>(.*?)</svg>", page, re.DOTALL)[::2]
    assert "response p95 &lt; 3s" in response
    assert "ok p95 &lt; 1s" in service
    assert "response p95 &lt; 3s" not in service
    (chart,) = re.findall(r"Time by percentile</title>(.*?)</svg>", page, re.DOTALL)
    assert '<path class="c4"' in chart
    assert '<th class="num" scope=col>response p95</th>' in page
    assert "Response" not in " ".join(titles(load_html(a_summary())))


def test_small_charts_show_the_response_time_of_the_steps_that_have_one() -> None:
    page = load_html(mixed())

    assert "<h3>Response or service time over time, all to one scale</h3>" in page
    assert "Percentiles of the service time of Shop.login" in page
    assert "Percentiles of the response time of Shop.browse" in page
    assert "<h3>Service time over time, all to one scale</h3>" in load_html(a_summary())


def test_two_open_runs_are_compared_by_their_response_times() -> None:
    one, other = an_open_summary(), a_summary()

    assert "p95 of the response time over time" in titles(comparison_html(compare(one, one), one, one))
    assert "p95 of the service time over time" in titles(comparison_html(compare(one, other), one, other))


def test_the_numbers_of_a_chart_are_in_a_table_too() -> None:
    summary = a_summary()

    page = load_html(summary)

    (inner,) = re.findall(r"The numbers of these charts</summary>(.*?)</details>", page, re.DOTALL)
    assert inner.count("<tr>") == len(summary.points) + 1


def test_the_bars_of_the_phases_add_up_to_the_mean_request() -> None:
    step = a_step("login", [0.1] * 100)
    step.phases = {"connect": latency([0.05] * 10), "wait": latency([0.095] * 100)}

    page = load_html(a_summary(steps=[step]))

    widths = [float(one) for one in re.findall(r'class="ph-\w+" style="width:([\d.]+)%"', page)]
    assert widths == [5.0, 95.0]


def test_a_share_is_drawn_as_a_part_of_all() -> None:
    held = [
        ThresholdOutcome(text="checks > 99%", passed=True, value=1.0, shown="100 %"),
        ThresholdOutcome(text="error rate < 1%", passed=True, value=0.005, shown="0.5 %"),
    ]

    page = load_html(a_summary(thresholds=held))

    assert re.findall(r'<b style="width:([\d.]+)%"></b><i style="left:([\d.]+)%">', page) == [
        ("100.0", "99.0"),
        ("25.0", "50.0"),
    ]


def test_where_only_some_percentiles_are_known_no_line_is_drawn_between_them() -> None:
    page = load_html(an_open_summary(response_distribution=[]))

    (chart,) = re.findall(r"Time by percentile</title>(.*?)</svg>", page, re.DOTALL)
    assert chart.count('<circle class="c4 dot"') == 7
    assert '<path class="c4"' not in chart


def test_a_limit_is_drawn_where_what_it_limits_is_drawn() -> None:
    texts = ("p95 < 200ms", "p95 of browse < 300ms", "p95 of {area:checkout} < 400ms")
    limits = limits_of(a_summary(thresholds=[ThresholdOutcome(text=text, passed=True) for text in texts]))

    assert [mark.value for mark in marks_for(limits, "latency")] == [0.2]
    assert [mark.value for mark in marks_for(limits, "latency", "browse", "Shop.browse")] == [0.3]
