"""The demo is a test too: it compares every result itself and exits with 1 if one is not as expected."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mainstay.cli import app

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.slow
def test_every_result_of_the_demo_is_as_expected(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEMO, "--folder", tmp_path],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=_environ(),
        timeout=100,
        check=False,
    )

    printed = done.stdout
    assert (done.returncode, done.stderr) == (0, ""), printed
    for result in (
        "200 of 200 succeeded",
        "24 of 24 succeeded",
        "8 of 8 quarantined",
        "2 of 2 skipped",
        "8 of 8 failed",
        "1 of 1 pending",
        "6 of 6 timed_out",
        "12 of 12 cancelled",
    ):
        assert re.search(rf"{result} +ok", printed), result
    assert re.search(r"worker-\d \(pid \d+\) killed with SIGKILL, half-way through orders.import", printed)
    assert re.search(r"the \d+ jobs? it held ran again, (\S+ to )?[\d.]+m?s later", printed)
    assert re.search(r"worker-\d frozen with SIGSTOP in report.render", printed)
    assert re.search(r"refused +worker-\d came back at .* and reported 'succeeded' with an old claim", printed)
    assert "check: clean, 350 jobs" in printed
    assert "check: broken_chain: event 3 was changed after it was written" in printed
    _what_it_says_to_try_next_works(printed)
    assert _left_running(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "jobs submitted"),
        (signal.SIGINT, "worker-1 and worker-2 start"),
        (signal.SIGTERM, "killed with SIGKILL"),
        (signal.SIGINT, "frozen with SIGSTOP"),
    ],
    ids=["at-first", "as-workers-start", "by-another-signal", "while-one-is-frozen"],
)
def test_a_demo_that_is_stopped_leaves_nothing_behind(
    number: signal.Signals, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    with subprocess.Popen(
        [sys.executable, DEMO],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=_environ(),
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        printed = ""
        for line in demo.stdout:
            printed += line
            if moment in line:
                demo.send_signal(number)
        noise = demo.stderr.read()

    assert (demo.returncode, noise) == (130, ""), printed
    assert printed.endswith("stopped; no process is left running\n")
    assert list(tmp_path.glob("mainstay-demo-*")) == []
    assert _left_running(tmp_path) == []


def test_a_folder_that_holds_a_database_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("mine")

    done = subprocess.run(
        [sys.executable, DEMO, "--folder", tmp_path], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2
    assert "contains a jobs.db already; choose another folder" in done.stderr
    assert (tmp_path / "jobs.db").read_text() == "mine"


def _environ() -> dict[str, str]:
    # unbuffered, so that a line is read when it is printed; wide, so that none is folded
    return {**os.environ, "COLUMNS": "160", "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}


def _left_running(folder: Path) -> list[str]:
    """Processes that were started with a store in this folder. Zombies have no environment."""
    return [words for words, environ in _processes() if str(folder) in environ]


def _processes() -> Iterator[tuple[str, str]]:
    for place in Path("/proc").glob("[0-9]*"):
        if place.name == str(os.getpid()):
            continue
        try:
            words, environ = ((place / name).read_bytes().decode(errors="replace") for name in ("cmdline", "environ"))
        except OSError:  # it has ended, or belongs to another user
            continue
        yield words.replace("\0", " "), next((each for each in environ.split("\0") if "MAINSTAY_STORE" in each), "")


def _what_it_says_to_try_next_works(printed: str) -> None:
    (url,) = re.findall(r"export MAINSTAY_STORE=(\S+)", printed)
    commands = re.findall(r"^ +\S*mainstay ((?:stats|jobs|check)\b.*)$", printed, flags=re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        done = CliRunner().invoke(app, command.split(), env={"MAINSTAY_STORE": url}, catch_exceptions=False)
        assert done.exit_code == (1 if "forged" in command else 0), done.output
