"""The tables of the suite of fan-in, for the terminal and for the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec

from .fan_in import GOAL, LAG_MS, FanInReport, FanInRound, OurFanIn
from .report import Section

KEPT = Path(__file__).resolve().parent / "results" / "fan-in.json"


def load(path: Path = KEPT) -> FanInReport:
    return msgspec.json.decode(path.read_bytes(), type=FanInReport)


def save(report: FanInReport, path: Path = KEPT) -> None:
    """With the goals and whether they were met, for a reader of the file alone."""
    goals = [
        {"reporters": count, "ratio": round(ratio_of(report, count), 3), "goal": GOAL, "met": is_met(report, count)}
        for count in _measured(report)
    ]
    kept = {**msgspec.to_builtins(report), "goals": goals}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def ratio_of(report: FanInReport, reporters: int) -> float:
    """The processor time of our manager for a reporter, as a share of that of Locust's master: the median."""
    return statistics.median(each.ratio for each in report.of(reporters))


def is_met(report: FanInReport, reporters: int) -> bool:
    return ratio_of(report, reporters) <= GOAL


def limit_of(report: FanInReport) -> str:
    """Where the event loop of the manager is late, in words."""
    late = [each.reporters for each in report.limits if each.lag_ms > LAG_MS]
    fine = [each.reporters for each in report.limits if each.lag_ms <= LAG_MS]
    if late:
        return f"the event loop is later than {LAG_MS:g} ms with {late[0]:,} reporters" + (
            f", and not with {fine[-1]:,}" if fine else ""
        )
    return f"the event loop is not later than {LAG_MS:g} ms with {fine[-1]:,} reporters" if fine else ""


def sections(report: FanInReport) -> list[Section]:
    """Every table; those without a row are left out."""
    tables = [
        Section(
            "Fan-in: processor time of the receiver for a reporter, ms in a second",
            ("reporters", "interval, s", "Mainstay", "Locust", "Mainstay needs", "goal"),
            [_line(report, count) for count in _measured(report)],
        ),
        Section(
            f"Fan-in: the limit ({limit_of(report)})",
            ("reporters", "share of a core", "windows a run", "late windows", "loop late, ms", "99 of 100, ms"),
            [_limit_line(each) for each in report.limits],
        ),
    ]
    return [table for table in tables if table.lines]


def about(report: FanInReport) -> str:
    """The machine and the versions, and what is missing."""
    lines = report.told()
    lines.append(f"The load average at its end was {report.load_after}, its own processes included.")
    lines += [f"Skipped: {name} ({why.splitlines()[0]})." for name, why in report.skipped.items()]
    lines += [f"Trouble: {trouble.splitlines()[0]}" for trouble in report.trouble]
    return "\n".join(lines)


# -- cells --------------------------------------------------------------------------------------


def _measured(report: FanInReport) -> list[int]:
    return [count for count in report.sizes.reporters if report.of(count)]


def _median(report: FanInReport, reporters: int, read: Callable[[FanInRound], float]) -> float:
    return statistics.median(read(each) for each in report.of(reporters))


def _line(report: FanInReport, reporters: int) -> list[str]:
    ratios = [each.ratio for each in report.of(reporters)]
    ratio = ratio_of(report, reporters)
    return [
        f"{reporters:,}",
        f"{report.of(reporters)[0].interval_s:g}",
        f"{_median(report, reporters, lambda each: each.mainstay.per_reporter_ms):.3f}",
        f"{_median(report, reporters, lambda each: each.locust.per_reporter_ms):.3f}",
        f"{ratio:.2f}x ({min(ratios):.2f} to {max(ratios):.2f})",
        f"at most {GOAL:g}x: {'met' if ratio <= GOAL else 'missed'}",
    ]


def _limit_line(each: OurFanIn) -> list[str]:
    return [
        f"{each.reporters:,}",
        f"{each.core:.0%}",
        f"{each.windows:,}",
        f"{each.late:,}",
        f"{each.lag_ms:.0f}",
        f"{each.lag_p99_ms:.0f}",
    ]
