"""The table of the flood suite, for the terminal and for the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec

from .report import Section
from .window_flood import GOAL, FloodReport, FloodTurn

KEPT = Path(__file__).resolve().parent / "results" / "window-flood.json"


def load(path: Path = KEPT) -> FloodReport:
    return msgspec.json.decode(path.read_bytes(), type=FloodReport)


def save(report: FloodReport, path: Path = KEPT) -> None:
    """With the goal and whether it was met, for a reader of the file alone."""
    kept = {**msgspec.to_builtins(report), "ratio": round(report.ratio, 3), "goal": GOAL, "met": report.met}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def sections(report: FloodReport) -> list[Section]:
    if not report.rounds:
        return []
    idle, flooded = [each.idle for each in report.rounds], [each.flooded for each in report.rounds]
    goal = f"at most {GOAL:g}: {'met' if report.met else 'missed'}"
    lines = [
        _line("idle", idle, "", ""),
        _line(
            f"{report.sizes.rate:,} windows a second",
            flooded,
            f"{_ratios([each.beats for each in report.rounds])}; {_ratios([each.cancels for each in report.rounds])}",
            goal,
        ),
    ]
    headings = ("manager", "heartbeat, median (95 %)", "cancel, median (95 %)", "ratios of the medians", "goal")
    return [Section("Heartbeats and cancels under a flood of statistics", headings, lines)]


def about(report: FloodReport) -> str:
    """The machine, the versions, and what became of the windows."""
    lines = report.told()
    if report.rounds:
        sent, taken, dropped = (
            _median([each.flooded for each in report.rounds], of)
            for of in (_sent_a_second, _taken_a_second, _dropped_a_second)
        )
        lines.append(f"Each second {sent:,.0f} windows were sent, {taken:,.0f} added up and {dropped:,.0f} dropped.")
    lines.append(f"The load average at its end was {report.load_after}, its own processes included.")
    lines += [f"Trouble: {trouble.splitlines()[0]}" for trouble in report.trouble]
    return "\n".join(lines)


def _line(name: str, turns: list[FloodTurn], ratios: str, goal: str) -> list[str]:
    beats = f"{_median(turns, lambda each: each.beat_ms):.2f} ms ({_median(turns, lambda each: each.beat_p95_ms):.2f})"
    cancels = (
        f"{_median(turns, lambda each: each.cancel_ms):.2f} ms ({_median(turns, lambda each: each.cancel_p95_ms):.2f})"
    )
    return [name, beats, cancels, ratios, goal]


def _ratios(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def _median(turns: list[FloodTurn], of: Callable[[FloodTurn], float]) -> float:
    return statistics.median(of(each) for each in turns)


def _sent_a_second(turn: FloodTurn) -> float:
    return turn.sent_a_second


def _taken_a_second(turn: FloodTurn) -> float:
    return turn.taken_a_second


def _dropped_a_second(turn: FloodTurn) -> float:
    return turn.dropped_a_second
