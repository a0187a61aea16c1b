"""The table of the cluster suite, for the terminal and for the documentation."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from .cluster import GOAL, Report
from .report import Section

KEPT = Path(__file__).resolve().parent / "results" / "cluster.json"


def load(path: Path = KEPT) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(report: Report, path: Path = KEPT) -> None:
    """With the goal and whether it was met, for a reader of the file alone."""
    kept = {**msgspec.to_builtins(report), "ratio": round(report.ratio, 3), "goal": GOAL, "met": report.met}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def sections(report: Report) -> list[Section]:
    if not report.rounds:
        return []
    direct, manager = [each.direct for each in report.rounds], [each.manager for each in report.rounds]
    lines = [
        _line("direct worker", [each.a_second for each in direct], [each.pickup_ms for each in direct], "", ""),
        _line(
            "node, through a manager",
            [each.a_second for each in manager],
            [each.pickup_ms for each in manager],
            f"{report.ratio:.2f} of the direct worker ({min(each.ratio for each in report.rounds):.2f} to "
            f"{max(each.ratio for each in report.rounds):.2f})",
            f"at least {GOAL}: {'met' if report.met else 'missed'}",
        ),
    ]
    headings = ("SQLite, one engine", "jobs/s, median", "submit to end, median", "rate", "goal")
    return [Section("A node beside a direct worker", headings, lines)]


def about(report: Report) -> str:
    """The machine and the versions."""
    lines = report.told()
    lines.append(f"The load average at its end was {report.load_after}, its own processes included.")
    lines += [f"Trouble: {trouble.splitlines()[0]}" for trouble in report.trouble]
    return "\n".join(lines)


def _line(name: str, rates: list[float], pickups: list[float], ratio: str, goal: str) -> list[str]:
    return [name, f"{statistics.median(rates):,.0f}", f"{statistics.median(pickups):.1f} ms", ratio, goal]
