"""The flood suite gives the ratio of both turns of each round, and says whether the goal was met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import window_flood_report
from bench.window_flood import FloodReport, FloodRound, FloodSizes, FloodTurn

ROOT = Path(__file__).parents[2]


def _turn(beat_ms: float, cancel_ms: float) -> FloodTurn:
    return FloodTurn(beat_ms=beat_ms, beat_p95_ms=9.0, cancel_ms=cancel_ms, cancel_p95_ms=9.0)


def _report(*ratios: tuple[float, float]) -> FloodReport:
    rounds = [FloodRound(idle=_turn(1.0, 2.0), flooded=_turn(beats, 2.0 * cancels)) for beats, cancels in ratios]
    return FloodReport(at="2026-01-01", machine={}, versions={}, sizes=FloodSizes(), rounds=rounds)


@pytest.mark.parametrize(
    ("ratios", "met"),
    [
        (((1.0, 1.0), (2.0, 2.0), (5.0, 5.0)), "met"),
        (((1.0, 1.0), (2.1, 1.0), (5.0, 5.0)), "missed"),
        (((1.0, 1.0), (1.0, 2.1), (5.0, 5.0)), "missed"),
    ],
)
def test_the_goal_is_for_the_medians_of_both_over_the_rounds(ratios: tuple[tuple[float, float], ...], met: str) -> None:
    report = _report(*ratios)
    [section] = window_flood_report.sections(report)
    assert section.lines[0][:3] == ["idle", "1.00 ms (9.00)", "2.00 ms (9.00)"]
    assert section.lines[1][-1] == f"at most 2: {met}"
    assert report.met == (met == "met")


def test_without_rounds_the_goal_is_not_met() -> None:
    assert not _report().met
    assert window_flood_report.sections(_report()) == []


def test_a_kept_flood_is_read_back(tmp_path: Path) -> None:
    report = _report((1.0, 1.5))
    window_flood_report.save(report, tmp_path / "flood.json")
    assert window_flood_report.load(tmp_path / "flood.json") == report


@pytest.mark.slow
def test_the_suite_measures_both_turns(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "window-flood", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    [kept] = window_flood_report.load(tmp_path / "window-flood.json").rounds
    assert min(kept.idle.beat_ms, kept.idle.cancel_ms, kept.flooded.beat_ms, kept.flooded.cancel_ms) > 0
    assert kept.flooded.sent_a_second > 0
