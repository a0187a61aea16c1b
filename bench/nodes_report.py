"""The tables of the nodes suite, for the terminal and for the documentation."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .nodes import Report, Waits
from .report import NONE, TITLES, Section

KEPT = Path(__file__).resolve().parent / "results" / "nodes.json"


def load(path: Path = KEPT) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(report: Report, path: Path = KEPT) -> None:
    """With the goals and whether they were met, for a reader of the file alone."""
    kept = {
        **msgspec.to_builtins(report),
        "goals": [dict(zip(_HEADINGS, line, strict=True)) for line in _lines(report)],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


_HEADINGS = ("what", "store", "times", "p50", "p99", "goal", "met")


def _lines(report: Report) -> list[list[str]]:
    return [_line(each) for each in report.waits]


def sections(report: Report) -> list[Section]:
    """Every table; those without a row are left out."""
    tables = [
        Section("Nodes: how soon", ("", "store", "times", "p50", "p99", "goal", ""), _lines(report)),
        Section(
            "Nodes: jobs a second, three nodes",
            ("store", "jobs", "jobs/s", "units/s"),
            [
                [TITLES[each.store], f"{each.jobs:,}", f"{each.a_second:.1f}", f"{4 * each.a_second:.1f}"]
                for each in report.rates
            ],
        ),
    ]
    return [table for table in tables if table.lines]


def about(report: Report) -> str:
    """The machine and the versions, and what is missing."""
    lines = report.told()
    lines.append(f"The load average at its end was {report.load_after}, its own processes included.")
    lines += [f"Skipped: {name} ({why.splitlines()[0]})." for name, why in report.skipped.items()]
    lines += [f"Trouble: {trouble.splitlines()[0]}" for trouble in report.trouble]
    return "\n".join(lines)


def _line(waits: Waits) -> list[str]:
    goals = []
    if waits.goal_p50_s is not None:
        goals.append(f"p50 {_span(waits.goal_p50_s)}")
    if waits.goal_s is not None:
        goals.append(f"p99 {_span(waits.goal_s)}" if goals else f"at most {_span(waits.goal_s)}")
    return [
        waits.what,
        TITLES[waits.store],
        f"{len(waits.seconds):,}",
        _span(waits.p50_s),
        _span(waits.p99_s),
        ", ".join(goals) or NONE,
        "" if not goals else "met" if waits.met else "missed",
    ]


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
