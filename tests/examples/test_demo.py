"""The demo is a test too: it judges every fate itself and exits with 1 if one is not as expected."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mainstay.cli import app

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.slow
def test_the_demo_tells_its_story_and_every_fate_is_as_expected(tmp_path: Path) -> None:
    environ = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, DEMO, "--folder", tmp_path],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environ,
        timeout=100,
        check=False,
    )

    told = done.stdout
    assert (done.returncode, done.stderr) == (0, ""), told
    for fate in ("240 succeeded", "8 quarantined", "6 timed_out", "8 failed", "12 cancelled"):
        assert re.search(rf"{fate} +ok", told), fate
    assert "killed with SIGKILL in the middle of orders.import" in told
    assert "refused: its claim (token 1) had been" in told
    assert "check: clean, 340 jobs" in told
    assert "check: broken_chain: event 3 was changed after it was written" in told
    _what_it_says_to_try_next_works(told)


@pytest.mark.slow
def test_ctrl_c_names_the_folder_that_is_left_and_leaves_nobody_running(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    words = [sys.executable, DEMO, "--folder", folder]
    # a session of its own: Ctrl-C reaches everybody in front of the terminal, the workers too
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
    ) as demo:
        assert demo.stdout is not None
        told = ""
        for line in demo.stdout:
            told += line
            if "worker processes start" in line:
                os.killpg(demo.pid, signal.SIGINT)
        assert demo.stderr is not None
        noise = demo.stderr.read()

    assert (demo.returncode, noise) == (130, "")
    assert told.endswith(f"stopped; what there is so far is in {folder}\nremove it with: rm -r {folder}\n")
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.pid, 0)


def _what_it_says_to_try_next_works(told: str) -> None:
    (url,) = re.findall(r"export MAINSTAY_STORE=(\S+)", told)
    commands = re.findall(r"^ +\S*mainstay ((?:stats|jobs|check|machine)\b.*)$", told, flags=re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        done = CliRunner().invoke(app, command.split(), env={"MAINSTAY_STORE": url}, catch_exceptions=False)
        assert done.exit_code == (1 if "forged" in command else 0), done.output
