"""The suite of load tests on nodes compares the processor time of both sides in all, and times their start."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from bench import load_nodes_report
from bench.load_nodes import LoadNodesReport, NodesRound, NodesSizes
from bench.load_nodes_sides import NodesJob, SideRun, load_command
from bench.load_nodes_start import NodesStart
from servers.programs import program

ROOT = Path(__file__).parents[2]


def _side(per_cpu_s: float, **more: object) -> SideRun:
    fields = {
        "requests": 100,
        "failed": 0,
        "served": 100,
        "connections": 40,
        "took_s": 5.0,
        "start_s": 1.0,
        "rate": 50.0,
        "cpu_s": 2.0,
        "warm_served": round(per_cpu_s),
        "warm_cpu_s": 1.0,
        "memory_mb": 300.0,
        "processes": 5,
        "shares": {"generators": 0.9, "manager": 0.1},
        **more,
    }
    return SideRun(**fields)  # type: ignore[arg-type]


def _start(skew_ms: float) -> NodesStart:
    return NodesStart(skew_ms=skew_ms, reported_ms=1.0, doubt_ms=0.5, submitted_s=1.5, command_s=2.0, nodes=4)


def _report(*ratios: float, starts: tuple[float, ...] = (3.0,)) -> LoadNodesReport:
    rounds = [NodesRound(connections=40, mainstay=_side(1000 * ratio), locust=_side(1000)) for ratio in ratios]
    return LoadNodesReport(
        at="2026-01-01", machine={}, versions={}, sizes=NodesSizes(), rounds=rounds, starts=[*map(_start, starts)]
    )


@pytest.mark.parametrize(("ratios", "met"), [((7.0, 8.0, 9.0), "met"), ((7.0, 7.9, 20.0), "missed")])
def test_the_goal_is_for_the_median_of_the_rounds(ratios: tuple[float, ...], met: str) -> None:
    compared, *_ = load_nodes_report.sections(_report(*ratios))

    assert compared.lines[0][:4] == [
        "40",
        "Mainstay, a manager and 4 nodes",
        f"{1000 * ratios[1]:,.0f}",
        f"{ratios[1]:.1f}x ({ratios[0]:.1f} to {ratios[2]:.1f})",
    ]
    assert compared.lines[0][4] == f"at least 8x: {met}"
    assert compared.lines[1][:4] == ["40", "Locust, a master and 4 workers", "1,000", ""]


@pytest.mark.parametrize(("starts", "met"), [((1.0, 19.9), "met"), ((1.0, 1.0, 20.0), "missed")])
def test_the_goal_of_the_start_is_for_the_worst_of_all(starts: tuple[float, ...], met: str) -> None:
    *_, start = load_nodes_report.sections(_report(8.0, starts=starts))

    assert start.lines[0] == [
        "first requests of two nodes apart, at the target, ms",
        str(len(starts)),
        *("10.45" if len(starts) == 2 else "1.00", f"{starts[-1]:.2f}", "under 20 ms", met),
    ]


def test_every_cell_stands_under_a_heading() -> None:
    sections = load_nodes_report.sections(_report(8.0))

    assert len(sections) == 4
    for section in sections:
        assert {len(line) for line in section.lines} == {len(section.headings)}, section.title
    assert load_nodes_report.sections(_report(starts=())) == []


def test_a_kept_run_is_read_back_and_has_the_ratios(tmp_path: Path) -> None:
    report = _report(7.0, 9.0)
    load_nodes_report.save(report, tmp_path / "kept.json")

    assert load_nodes_report.load(tmp_path / "kept.json") == report
    ratio, skew = json.loads((tmp_path / "kept.json").read_text())["goals"]
    assert ratio == {"connections": 40, "ratio": 8.0, "whole_ratio": 1.0, "goal": 8.0, "met": True}
    assert skew == {"skew_ms": 3.0, "goal": 20.0, "met": True}


def test_a_run_on_nodes_has_a_process_on_each() -> None:
    command = load_command("nats://x", "http://y", Path("out.json"), NodesJob(nodes=4, connections=40, seconds=9))

    words = dict(pairwise(command))
    assert (words["--cluster"], words["--nodes"], words["--processes"]) == ("nats://x", "4", "4")
    assert (words["--vus"], words["--duration"], words["--base-url"]) == ("40", "9s", "http://y")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_measures_both_sides_and_a_start(tmp_path: Path) -> None:
    program("nginx", "nginx")  # installed, or said to be missing

    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "load-nodes", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    kept = load_nodes_report.load(tmp_path / "load-nodes.json")
    [start] = kept.starts
    assert (start.nodes, start.submitted_s > 0) == (4, True)
    # without a network there is no Locust
    for each in kept.rounds:
        assert each.mainstay.failed == each.locust.failed == 0
        assert set(each.mainstay.shares) == {"bus", "command", "generators", "manager", "node"}
        assert [slice_.processes for slice_ in each.mainstay.slices] == [1, 1, 1, 1]
