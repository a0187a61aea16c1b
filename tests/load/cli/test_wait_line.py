"""Notes and waits go where the display of the run leaves room."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mainstay.load.cli.lines import Lines
from mainstay.load.cli.live import LiveView
from mainstay.load.cli.wait_line import WaitLine
from tests.load.cli.moments import header


def terminal() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=100), out


def test_in_a_log_each_wait_is_a_line() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100)
    with WaitLine(console, Lines(console)) as line:
        line.wait("waits for 8 cores; place 2 of 2")
        line.wait("waits for 8 cores; place 1 of 2")
        line.wait("")
        line.note("the cluster answers again")

    assert out.getvalue().splitlines() == [
        "the run waits for 8 cores; place 2 of 2",
        "the run waits for 8 cores; place 1 of 2",
        "the cluster answers again",
    ]


async def test_on_a_terminal_a_wait_is_one_line_that_ends_before_the_view_takes_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console, out = terminal()
    with LiveView(console) as view, WaitLine(console, view) as line:
        line.note("job 1 is submitted")
        line.wait("waits for 8 cores")
        line.wait("")
        assert "the run waits for 8 cores" in out.getvalue()
        await view.start(header("browse"))
        line.note("the cluster does not answer")

        assert "job 1 is submitted" in capsys.readouterr().err
        assert view.is_shown
        assert "the cluster does not answer" not in capsys.readouterr().err


def test_without_a_display_only_notes_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    console, out = terminal()
    with WaitLine(console, None) as line:
        line.wait("waits for 8 cores")
        line.note("warning: users.csv is not sent")

    assert out.getvalue() == ""
    assert capsys.readouterr().err == "warning: users.csv is not sent\n"
