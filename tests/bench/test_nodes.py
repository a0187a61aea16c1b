"""The nodes suite says which goals were met, and keeps every sample."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import nodes_report
from bench.nodes import NodeRate, Report, Sizes, Waits

ROOT = Path(__file__).parents[2]


def _report(*waits: Waits) -> Report:
    rates = [NodeRate(store="sqlite", jobs=20, took_s=0.5)]
    return Report(at="2026-01-01", machine={}, versions={}, sizes=Sizes(), waits=list(waits), rates=rates)


@pytest.mark.parametrize(
    ("seconds", "met"),
    [([0.05] * 99 + [0.25], "met"), ([0.051] * 100, "missed"), ([0.01] * 90 + [0.26] * 10, "missed")],
    ids=["at the goals", "late in general", "late at times"],
)
def test_a_goal_is_for_the_median_and_for_the_slowest_of_a_hundred(seconds: list[float], met: str) -> None:
    waits = Waits(store="sqlite", what="wake-up", seconds=seconds, goal_p50_s=0.05, goal_s=0.25)
    [line] = nodes_report.sections(_report(waits))[0].lines
    assert (line[-2], line[-1]) == ("p50 50 ms, p99 250 ms", met)


def test_a_takeover_has_one_goal_and_a_rate_has_none() -> None:
    how_soon, rates = nodes_report.sections(
        _report(Waits(store="postgresql", what="takeover", seconds=[0.4, 2.1], goal_s=2.0))
    )
    assert how_soon.lines == [["takeover", "PostgreSQL", "2", "400 ms", "2.1 s", "at most 2.0 s", "missed"]]
    assert rates.lines == [["SQLite", "20", "40.0", "160.0"]]


def test_a_kept_run_is_read_back(tmp_path: Path) -> None:
    report = _report(Waits(store="sqlite", what="wake-up", seconds=[0.01, 0.02]))
    nodes_report.save(report, tmp_path / "nodes.json")
    assert nodes_report.load(tmp_path / "nodes.json") == report


@pytest.mark.slow
def test_the_suite_runs_on_both_stores(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "nodes", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    kept = nodes_report.load(tmp_path / "nodes.json")
    stores = ["sqlite"] if "postgresql" in kept.skipped else ["sqlite", "postgresql"]
    assert [each.store for each in kept.rates] == stores
    for store in stores:
        found = {each.what: len(each.seconds) for each in kept.waits if each.store == store}
        assert list(found.values()) == [15, 1, 1, 1], found
