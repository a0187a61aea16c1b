"""The tables of the suite of load tests on nodes, for the terminal and for the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec

from .load_nodes import GOAL, SKEW_MS, LoadNodesReport, NodesRound
from .load_nodes_sides import SideRun
from .load_nodes_start import NodesStart
from .report import Section

KEPT = Path(__file__).resolve().parent / "results" / "load-nodes.json"

SIDES: dict[str, Callable[[NodesRound], SideRun]] = {
    "Mainstay, a manager and {nodes} nodes": lambda each: each.mainstay,
    "Locust, a master and {nodes} workers": lambda each: each.locust,
}
_STARTS: dict[str, tuple[Callable[[NodesStart], float], str]] = {
    "first requests of two nodes apart, at the target, ms": (lambda each: each.skew_ms, f"under {SKEW_MS:.0f} ms"),
    "the same as the nodes report it, ms": (lambda each: each.reported_ms, f"under {SKEW_MS:.0f} ms"),
    "doubt of the clock of a node, ms": (lambda each: each.doubt_ms, ""),
    "submit to first request, s": (lambda each: each.submitted_s, ""),
    "start of the command to first request, s": (lambda each: each.command_s, ""),
}


def load(path: Path = KEPT) -> LoadNodesReport:
    return msgspec.json.decode(path.read_bytes(), type=LoadNodesReport)


def save(report: LoadNodesReport, path: Path = KEPT) -> None:
    """With the goals and whether they were met, for a reader of the file alone."""
    kept = {
        **msgspec.to_builtins(report),
        "goals": [
            *(
                {
                    "connections": connections,
                    "ratio": round(report.ratio(connections), 2),
                    "whole_ratio": round(_median(report, connections, lambda each: each.whole_ratio), 2),
                    "goal": GOAL,
                    "met": report.ratio(connections) >= GOAL,
                }
                for connections in _measured(report)
            ),
            *({"skew_ms": report.skew_ms, "goal": SKEW_MS, "met": report.skew_ms < SKEW_MS} for _ in report.starts[:1]),
        ],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def sections(report: LoadNodesReport) -> list[Section]:
    """Every table; those without a row are left out."""
    tables = [
        Section(
            "Load on nodes: requests for a second of processor time of all processes",
            ("connections", "", "under load", "Mainstay makes", "goal", "with the start", "Mainstay makes"),
            [line for connections in _measured(report) for line in _lines(report, connections)],
        ),
        Section(
            "Load on nodes: what else",
            (
                *("connections", "", "requests a second", "first request after, s", "processes"),
                *("memory of all, MB", "requests", "failed"),
            ),
            [line for connections in _measured(report) for line in _more_lines(report, connections)],
        ),
        Section(
            "Load on nodes: where Mainstay's processor time goes under load",
            ("connections", *_roles(report)),
            [
                [str(connections), *(f"{_share(report, connections, role):.1%}" for role in _roles(report))]
                for connections in _measured(report)
            ],
        ),
        Section(
            f"Load on nodes: the start, {report.sizes.nodes} nodes",
            ("", "starts", "median", "most", "goal", ""),
            [_start_line(report, what) for what in _STARTS] if report.starts else [],
        ),
    ]
    return [table for table in tables if table.lines]


def about(report: LoadNodesReport) -> str:
    """The machine and the versions, and what is missing."""
    lines = report.told()
    lines.append(f"The load average at its end was {report.load_after}, its own processes included.")
    lines += [f"Skipped: {name} ({why.splitlines()[0]})." for name, why in report.skipped.items()]
    lines += [f"Trouble: {trouble.splitlines()[0]}" for trouble in report.trouble]
    return "\n".join(lines)


# -- cells --------------------------------------------------------------------------------------


def _measured(report: LoadNodesReport) -> list[int]:
    return [connections for connections in report.sizes.connections if report.of(connections)]


def _median(report: LoadNodesReport, connections: int, read: Callable[[NodesRound], float]) -> float:
    return statistics.median(read(each) for each in report.of(connections))


def _lines(report: LoadNodesReport, connections: int) -> list[list[str]]:
    rounds = report.of(connections)
    ratio, ratios = report.ratio(connections), [each.ratio for each in rounds]
    whole = _median(report, connections, lambda each: each.whole_ratio)
    compared = [
        f"{ratio:.1f}x ({min(ratios):.1f} to {max(ratios):.1f})",
        f"at least {GOAL:g}x: {'met' if ratio >= GOAL else 'missed'}",
        f"{whole:.1f}x",
    ]
    lines = []
    for title, read in SIDES.items():
        beside, goal, beside_whole = compared if not lines else ["", "", ""]
        under_load = statistics.median(read(each).per_cpu_s for each in rounds)
        in_all = statistics.median(read(each).per_whole_cpu_s for each in rounds)
        name = title.format(nodes=report.sizes.nodes)
        lines.append([str(connections), name, f"{under_load:,.0f}", beside, goal, f"{in_all:,.0f}", beside_whole])
    return lines


def _more_lines(report: LoadNodesReport, connections: int) -> list[list[str]]:
    rounds = report.of(connections)
    return [
        [
            str(connections),
            title.format(nodes=report.sizes.nodes),
            f"{statistics.median(read(each).rate for each in rounds):,.0f}",
            f"{statistics.median(read(each).start_s for each in rounds):.2f}",
            str(max(read(each).processes for each in rounds)),
            f"{statistics.median(read(each).memory_mb for each in rounds):,.0f}",
            f"{sum(read(each).requests for each in rounds):,}",
            f"{sum(read(each).failed for each in rounds):,}",
        ]
        for title, read in SIDES.items()
    ]


def _share(report: LoadNodesReport, connections: int, role: str) -> float:
    return _median(report, connections, lambda each: each.mainstay.shares.get(role, 0.0))


def _roles(report: LoadNodesReport) -> list[str]:
    return sorted({role for each in report.rounds for role in each.mainstay.shares})


def _start_line(report: LoadNodesReport, what: str) -> list[str]:
    read, goal = _STARTS[what]
    found = [read(each) for each in report.starts]
    met = ("met" if max(found) < SKEW_MS else "missed") if goal else ""
    return [what, str(len(found)), f"{statistics.median(found):.2f}", f"{max(found):.2f}", goal, met]
