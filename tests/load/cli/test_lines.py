"""A load test as lines of a log."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mainstay.load.cli.lines import Lines
from mainstay.load.stats.model import Header, Summary, ThresholdOutcome
from tests.load.cli.moments import header, moments


async def told(of: Header, *, seconds: float, **how: object) -> list[str]:
    file = io.StringIO()
    lines = Lines(Console(file=file))
    await lines.start(of)
    for moment in moments(of, seconds=seconds, **how):  # type: ignore[arg-type]
        lines.add(moment)
    return file.getvalue().splitlines()


@pytest.fixture
def of() -> Header:
    return header("login", "browse")


async def test_a_line_a_second_at_first_and_then_one_in_ten_seconds(of: Header) -> None:
    lines = await told(of, seconds=35, a_second=20)

    assert lines[0] == "shop begins, 1m, 2 processes; Shop: 50 users"
    assert [line.split()[0] for line in lines[1:]] == [*(f"{n}s" for n in range(1, 11)), "20s", "30s"]
    assert not any("\x1b" in line or "\r" in line for line in lines)


async def test_a_line_is_about_the_time_since_the_last_one(of: Header) -> None:
    lines = await told(of, seconds=2, a_second=500)

    assert "running  50 users  1,000/s  failed 0  p50 " in lines[1]
    assert "1,000/s" in lines[2]


async def test_what_is_new_is_told_once_when_it_happens(of: Header) -> None:
    lines = await told(of, seconds=2, a_second=20, failing=0.5, distrust=("its core is full",))

    assert lines.count("threshold broken: error rate < 1% (it is 50.0%)") == 1
    assert lines.count("NOT TRUSTWORTHY: its core is full") == 1


async def test_a_threshold_that_recovers_is_told_too(of: Header) -> None:
    file = io.StringIO()
    lines = Lines(Console(file=file))
    bad, good = list(moments(of, seconds=0.2, a_second=20))
    bad.thresholds = [ThresholdOutcome(text="p95 < 1ms", passed=False, value=1.0, shown="1 s")]
    good.thresholds = [ThresholdOutcome(text="p95 < 1ms", passed=True, value=0.0005, shown="500 µs")]

    lines.add(bad)
    lines.add(good)

    assert file.getvalue().splitlines() == [
        "threshold broken: p95 < 1ms (it is 1 s)",
        "threshold holds again: p95 < 1ms (it is 500 µs)",
    ]


async def test_its_end_says_how_it_ended(of: Header) -> None:
    file = io.StringIO()
    lines = Lines(Console(file=file))

    await lines.stop(
        Summary(header=of, elapsed_s=12.34, requests=0, failed=0, rate=0.0, iterations=0, users=0, ended="interrupted")
    )

    assert file.getvalue() == "interrupted after 12.3s\n"


async def test_what_raised_without_a_request_is_told_beside_what_failed(of: Header) -> None:
    file = io.StringIO()
    lines = Lines(Console(file=file, width=200))
    await lines.start(of)
    for moment in moments(of, seconds=1, a_second=20):
        moment.window.steps[0].errors["LookupError"] = 2
        lines.add(moment)

    assert "  raised 20" in file.getvalue()
