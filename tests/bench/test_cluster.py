"""The cluster suite compares both sides of each round, and says whether the goal was met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import cluster_report
from bench.cluster import Report, Round, Side, Sizes

ROOT = Path(__file__).parents[2]


def _report(*ratios: float) -> Report:
    rounds = [
        Round(direct=Side(a_second=1000.0, pickup_ms=2.0), manager=Side(a_second=1000.0 * ratio, pickup_ms=4.0))
        for ratio in ratios
    ]
    return Report(at="2026-01-01", machine={}, versions={}, sizes=Sizes(), rounds=rounds)


@pytest.mark.parametrize(("ratios", "met"), [((0.5, 0.6, 0.9), "met"), ((0.5, 0.59, 0.9), "missed")])
def test_the_goal_is_for_the_median_of_the_rounds(ratios: tuple[float, ...], met: str) -> None:
    [section] = cluster_report.sections(_report(*ratios))

    assert section.lines[0][:3] == ["direct worker", "1,000", "2.0 ms"]
    assert section.lines[1][-1] == f"at least 0.6: {met}"


def test_a_kept_run_is_read_back(tmp_path: Path) -> None:
    report = _report(0.7)
    cluster_report.save(report, tmp_path / "cluster.json")
    assert cluster_report.load(tmp_path / "cluster.json") == report


@pytest.mark.slow
def test_the_suite_runs_both_sides(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "cluster", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    [kept] = cluster_report.load(tmp_path / "cluster.json").rounds
    assert min(kept.direct.a_second, kept.manager.a_second, kept.direct.pickup_ms, kept.manager.pickup_ms) > 0
