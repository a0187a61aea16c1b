"""The benchmark runs end to end and keeps what it measured."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import RESULTS, SUITES, _kept_in

ROOT = Path(__file__).parents[2]


def test_a_quick_run_measures_every_scenario_on_both_sides(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "sqlite", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    kept = json.loads((tmp_path / "sqlite.json").read_text())
    assert all(row["raw"] > 0 and row["ours"] > 0 for row in kept["rows"])
    assert {row["bar"] for row in kept["rows"]} >= {"at least half the baseline", "p99 under 50 ms"}


@pytest.mark.parametrize(
    "part",
    [{"quick": True}, {"systems": ["celery", "mainstay-redis"]}, {"names": {"queues": ["kill"]}}],
    ids=lambda part: next(iter(part)),
)
def test_a_part_of_a_run_never_replaces_what_is_kept(part: dict[str, object]) -> None:
    names = {suite: list(scenarios) for suite, scenarios in SUITES.items()}
    whole = {"quick": False, "systems": None, "results": None}

    assert _kept_in("queues", names, argparse.Namespace(**whole)) == RESULTS.resolve() / "queues.json"
    assert _kept_in("queues", part.pop("names", names), argparse.Namespace(**{**whole, **part})) is None
