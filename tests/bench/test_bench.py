"""The benchmark runs end to end and keeps what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
