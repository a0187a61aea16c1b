"""The study of an epidemic is a program that runs, and its numbers are those of an epidemic."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = Path(__file__).parents[2] / "examples" / "sir.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def first(folder: Path) -> str:
    """What it told when it ran for the first time."""
    return run_in(folder)


def test_an_epidemic_study_that_is_run_again_has_nothing_to_run(first: str, folder: Path) -> None:
    again = run_in(folder)

    assert "succeeded: 221 of 221 outputs are present" in first
    assert "200 units were run, the outputs of 0 were there already" in first
    assert "0 units were run, the outputs of 200 were there already" in again
    assert table_in(first) == table_in(again)


def test_the_more_contagious_an_epidemic_is_the_more_fall_ill(first: str) -> None:
    rows = table_in(first)

    assert len(rows) == 20
    assert {row["runs"] for row in rows} == {"10"}
    by_ratio = sorted(rows, key=lambda row: float(row["beta"]) / float(row["gamma"]))
    assert float(by_ratio[0]["attack_rate"]) < 0.05, "it dies out when each infects fewer than one other"
    assert float(by_ratio[-1]["attack_rate"]) > 0.95
    quick, slow = (
        next(row for row in rows if row["beta"] == beta and row["gamma"] == "0.1") for beta in ("0.6", "0.2")
    )
    assert float(quick["peak_day"]) < float(slow["peak_day"])


def run_in(folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAINSTAY_")}
    done = subprocess.run(
        [sys.executable, STUDY], cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def table_in(told: str) -> list[dict[str, str]]:
    return list(csv.DictReader(told[told.index("beta,gamma,") :].splitlines()))
