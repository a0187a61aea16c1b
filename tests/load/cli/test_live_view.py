"""The live view of a load test: what it shows, and that it fits."""

from __future__ import annotations

import asyncio
import io
import itertools
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from mainstay.load.cli.frame import frame
from mainstay.load.cli.live import Display, LiveView
from mainstay.load.cli.live_state import LiveState
from mainstay.load.cli.plot import Slice, plot
from mainstay.load.stats.histogram import Histogram, percentiles_of
from mainstay.load.stats.model import Header, Moment, Trust, Window
from tests.cli.terminal import PseudoTerminal
from tests.load.cli.moments import STARTED_MS, header, moments

SIZES = [(20, 6), (40, 12), (60, 15), (80, 24), (116, 30), (130, 20), (200, 60)]
REASON = "process 1 used 97 % of its core for 12 s: add --processes or machines"


def seen(*steps: str, seconds: float = 12, duration_s: float | None = 60.0, **how: object) -> LiveState:
    of = header(*(steps or ("login", "browse", "buy")), duration_s=duration_s)
    state = LiveState(of)
    for moment in moments(of, seconds=seconds, **how):  # type: ignore[arg-type]
        state.add(moment)
    return state


def drawn(state: LiveState, width: int = 100, height: int = 40) -> str:
    return "\n".join(line.plain for line in frame(state, width, height))


@pytest.fixture(scope="module")
def troubled() -> LiveState:
    return seen(failing=0.05, distrust=(REASON,))


@pytest.fixture(scope="module")
def crowded() -> LiveState:
    return seen(*(f"a_step_with_a_long_name_{n}" for n in range(40)), seconds=1, a_second=20, failing=0.5)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("which", ["troubled", "crowded", "nothing"])
def test_it_fits_a_terminal_of_any_size(which: str, size: tuple[int, int], request: pytest.FixtureRequest) -> None:
    state = LiveState(header()) if which == "nothing" else request.getfixturevalue(which)
    width, height = size

    lines = frame(state, width, height)

    assert len(lines) <= height
    assert max(cell_len(line.plain) for line in lines) <= width
    assert not any("\n" in line.plain for line in lines)


@pytest.mark.parametrize("height", range(1, 13))
@pytest.mark.parametrize("width", [20, 30, 40, 130])
def test_that_it_is_not_trustworthy_is_the_last_thing_to_go(troubled: LiveState, width: int, height: int) -> None:
    lines = frame(troubled, width, height)

    assert len(lines) <= height
    assert any(line.plain.startswith("NOT TRUSTWORTHY") for line in lines)


def test_a_small_terminal_has_what_matters_most(troubled: LiveState) -> None:
    text = drawn(troubled, 40, 12)

    assert all(
        word in text for word in ("shop", "12s of 1m", "/s", "failed (", "p99", "NOT TRUSTWORTHY", "✗ error rate")
    )
    assert "http 503" in text
    assert "┤" not in text


def test_a_large_one_has_all_of_it(troubled: LiveState) -> None:
    text = drawn(troubled, 160, 40)

    assert REASON in text
    assert all(
        word in text for word in ("login", "browse", "buy", "503 Service Unavailable", "1 broken", "┤", "CPU  70%")
    )
    assert "✓ p95 of browse < 200ms for 10s  100 ms" in text
    assert "checks 90 %" in text


def test_counts_are_those_of_the_run_and_percentiles_those_of_the_added_up_histograms() -> None:
    of = header("login", "browse")
    told = list(moments(of, seconds=5, failing=0.1))
    state, whole, latest = LiveState(of), Histogram(), Histogram()
    for number, moment in enumerate(told):
        state.add(moment)
        for stats in moment.window.steps:
            for sketch in (stats.ok, stats.failed):
                if sketch is not None:
                    whole.merge(sketch)
                    if number >= len(told) - 20:
                        latest.merge(sketch)

    failed = sum(stats.failed.count for each in told for stats in each.window.steps if stats.failed)
    assert (state.calls.requests, state.calls.failed) == (5000, failed)
    assert (state.rate, state.mean_rate) == (pytest.approx(1000), pytest.approx(1000))
    for shown, values in ((state.calls.values.latency(), whole), (state.latency_now(), latest)):
        assert shown is not None
        assert [shown.count, shown.p50, shown.p99, shown.max] == [
            values.count,
            *percentiles_of(values.sketch(), (0.5, 0.99, 1.0)),
        ]
    assert state.errors() == [("http 503", failed, "503 Service Unavailable")]
    assert [(row.name, row.requests, row.rate) for row in state.steps()] == [
        ("login", 2500, pytest.approx(500)),
        ("browse", 2500, pytest.approx(500)),
    ]


def test_an_open_model_is_shown_by_the_time_since_the_intended_start() -> None:
    state = seen("browse", seconds=2, intended=True)

    now = state.latency_now()
    assert now is not None
    assert now.p50 > 0.3  # the service took 20 ms
    assert "response  p50" in drawn(state)


def test_a_run_without_an_end_says_how_far_it_is() -> None:
    text = drawn(seen(seconds=3, duration_s=None))

    assert "3s so far, 1,500 iterations" in text


def test_nothing_that_a_target_or_a_test_said_moves_the_cursor() -> None:
    of = header("bro\x1b[2Jwse", name="shop\r\nevil")
    state = LiveState(of)
    for moment in moments(of, seconds=1, failing=0.5):
        moment.window.examples["http 503"] = "\x1b]0;title\x07"
        moment.trust = Trust(ok=False, reasons=["\x1b[31mred"])
        state.add(moment)

    text = drawn(state, 160, 40)

    assert not any(character in text for character in "\x1b\r\x07")


def test_a_long_run_keeps_few_slices_and_loses_nothing() -> None:
    of = header("browse", duration_s=None)
    one = next(iter(moments(of, seconds=0.1, a_second=100)))
    state = LiveState(of)
    for number in range(2000):
        window = Window(bucket=STARTED_MS // 100 + 10 * number, width=10, steps=one.window.steps)
        state.add(Moment(window=window, elapsed_s=number + 1.0, phase="running", trust=Trust()))

    slices = state.slices()

    assert 300 <= len(slices) <= 600
    assert (slices[0].at_s, slices[-1].at_s + slices[-1].width_s) == (0.0, 2000.0)
    assert all(before.at_s + before.width_s == after.at_s for before, after in itertools.pairwise(slices))
    assert sum(stretch.values.count for stretch in state._stretches) == 2000 * 10


def test_slow_is_drawn_above_fast_on_a_scale_of_round_numbers() -> None:
    lines = [line.plain for line in plot([Slice(0, 5, 0.003, 0.004), Slice(5, 5, 0.003, 0.8)], 60, 12, until_s=10)]

    assert (lines[0].split("┤")[0].strip(), lines[-2].split("┤")[0].strip()) == ("1 s", "2 ms")
    assert "10s" in lines[-1]
    # the upper half has dots on the right only
    upper = [line[9:] for line in lines[:5]]
    assert any(line[26:].strip() for line in upper)
    assert not any(line[:24].strip() for line in upper)


def test_a_terminal_without_braille_gets_letters() -> None:
    lines = [line.plain for line in plot([Slice(0, 10, 0.001, 0.9)], 40, 8, until_s=10, plain=True)]

    assert "x" in lines[0]
    assert "o" in lines[-2]
    assert all(line.isascii() for line in lines)


def test_names_that_are_wide_take_the_room_that_they_need() -> None:
    lines = frame(seen("買い物かご", "browse", seconds=1), 60, 30)

    (wide,) = (line.plain for line in lines if "買い物かご" in line.plain)
    (narrow,) = (line.plain for line in lines if line.plain.startswith("browse"))
    assert cell_len(wide) == cell_len(narrow)


class Broken(Display):
    """A terminal that cannot be written to any more."""

    def print(self, *objects: Any, **how: Any) -> None:
        raise OSError("the terminal is gone")


async def test_what_cannot_be_drawn_fails_the_view_and_not_silently() -> None:
    of = header("browse")
    with LiveView(Broken(file=io.StringIO(), force_terminal=True)) as view:
        await view.start(of)
        await asyncio.sleep(0)

        (moment,) = moments(of, seconds=0.1)
        with pytest.raises(OSError, match="the terminal is gone"):
            view.add(moment)


async def test_what_steps_print_is_told_when_the_screen_is_given_back_the_last_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LiveView(Display(file=io.StringIO(), force_terminal=True)) as view:
        view.said(0, "before")
        assert capsys.readouterr().err == "[0] before\n"

        await view.start(header("browse"))
        for number in range(502):
            view.said(1, f"line {number}")
        assert capsys.readouterr().err == ""

    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "... 2 earlier lines of the steps are left out"
    assert lines == [f"[1] line {number}" for number in range(2, 502)]


async def test_warnings_of_the_log_are_kept_until_the_screen_is_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("mainstay.load")
    with LiveView(Display(file=io.StringIO(), force_terminal=True)) as view:
        await view.start(header("browse"))
        log.warning("something was odd")
        assert "odd" not in capsys.readouterr().err

    assert "something was odd\n" in capsys.readouterr().err


# on a terminal ------------------------------------------------------------------------------------------

VIEW = """
import asyncio, sys
from rich.console import Console
from mainstay.load.cli.live import LiveView
from tests.load.cli.moments import header, moments

async def main():
    of = header("login", "browse", "buy")
    with LiveView(Console(), frames=20) as view:
        await view.start(of)
        for moment in moments(of, seconds=2, a_second=20):
            view.add(moment)
        if sys.argv[1:] == ["raise"]:
            await asyncio.sleep(0)
            raise RuntimeError("something broke")
        await asyncio.Event().wait()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


class Screen(PseudoTerminal):
    """A terminal of a size, with the view on it."""

    def __init__(self, *words: str, size: tuple[int, int]) -> None:
        env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        env |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(Path(__file__).parents[3])}
        super().__init__([sys.executable, "-c", VIEW, *words], env, size=size)


@pytest.mark.slow
def test_it_follows_the_size_of_the_terminal_and_gives_it_back_on_ctrl_c() -> None:
    with Screen(size=(40, 12)) as screen:
        screen.wait_for("Ctrl-C ends it")
        assert "max " not in screen.raw  # no room for it
        screen.resize(100, 30)
        screen.wait_for("max ")
        screen.wait_for("┤")
        screen.process.send_signal(signal.SIGINT)

        screen.end()

    assert screen.raw.count("\x1b[?1049h") == screen.raw.count("\x1b[?1049l") == 1
    after = screen.raw.split("\x1b[?1049l")[1]
    assert "interrupted" in after
    assert screen.raw.rindex("\x1b[?25h") > screen.raw.rindex("\x1b[?25l")


@pytest.mark.slow
def test_the_terminal_is_given_back_before_a_traceback_is_shown() -> None:
    with Screen("raise", size=(80, 24)) as screen:
        screen.end()

    before, after = screen.raw.split("\x1b[?1049l")
    assert "RuntimeError" not in before
    assert "RuntimeError: something broke" in after


def test_a_header_of_several_workflows_names_both_parts_of_a_step() -> None:
    of = header("browse")
    of.workflows.append({"name": "Other", "model": "1 user", "steps": []})
    state = LiveState(of)
    for moment in moments(of, seconds=0.2):
        state.add(moment)

    assert [row.name for row in state.steps()] == ["Shop.browse"]
    assert isinstance(state.header, Header)
