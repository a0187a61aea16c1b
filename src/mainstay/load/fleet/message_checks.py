"""Whether what a slice sends can be true. Messages are of the right types when they are decoded; these functions check
what they say, so that a node that does harm loses its slice, and not the run.

Each returns what is wrong, in words; empty: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from ..engine.messages import WorkflowsDone
from ..stats.accounts import Account
from ..stats.model import WINDOW_MS, Window
from ..stats.window_check import MOST_COUNTED, window_fault
from .messages import GoAdopted, SliceBeat, SliceEnd, SliceWindow
from .received_windows import MOST_AHEAD

#: a time that a slice reports; more are years
_MOST_S = 1e9
#: between an order to go that was recorded and the one that was sent, because it took long to store it
STORED_S = 3600.0
#: a process may begin a little before the first bucket, because clocks are rounded
_EARLY = 10
_ACCOUNT = tuple(name for name in Account.__struct_fields__ if name != "open")


def load_buckets(wall_s: float, loaded_s: float) -> range:
    """The buckets of a load that began then, by the clock from which windows are numbered, and lasts this long.

    >>> load_buckets(100.0, 60.0)
    range(990, 1602)
    """
    first = int(wall_s * 1000 // WINDOW_MS)
    return range(first - _EARLY, first + int(loaded_s * 1000 / WINDOW_MS) + 2)


def part_fault(part: SliceWindow, *, upto: int, buckets: range, processes: range) -> str:
    """Of a window that has not arrived yet. `upto`: how many are known. `buckets`: in which the slice can have been
    under load. `processes`: its own."""
    if not 1 <= part.count <= MOST_AHEAD or not 0 <= part.number <= upto + MOST_AHEAD:
        return f"{part.count} windows from number {part.number}, after {upto}"
    if part.window.width > part.count:
        return f"{part.count} windows of {part.window.width} buckets"
    return _sum_fault(part.window, buckets, processes)


def beat_fault(beat: SliceBeat, *, go: int, upto: int) -> str:
    """Of the answer to a ping. `upto`: how many windows of this go are known."""
    if not _is_time(beat.steady_s):
        return f"its clock is at {beat.steady_s}"
    return _windows_fault(beat.windows, upto) if beat.go == go else ""


def adopted_fault(
    answer: GoAdopted, *, now_s: float, slack_s: float, wall_s: float, begin_s: float, processes: range
) -> str:
    """Of what a slice says of a go. `now_s`: by its clock, which is known up to `slack_s`; `wall_s` and `begin_s`: as
    the order was recorded."""
    if not answer.began:
        return ""
    if not _is_time(answer.at_s) or answer.at_s > now_s + slack_s:
        return f"it began at {answer.at_s}, and its clock is at {now_s}"
    for name, found, known in (("wall", answer.wall, wall_s), ("begin_s", answer.begin_s, begin_s)):
        if not -1.0 <= found - known <= STORED_S:
            return f"{name} is {found}, and the order had {known}"
    if not 0 <= answer.windows <= MOST_COUNTED or (answer.total is None) != (answer.windows == 0):
        return f"it has {answer.windows} windows"
    if answer.total is None:
        return ""
    buckets = load_buckets(answer.wall, max(0.0, now_s - answer.at_s) + slack_s)
    return _sum_fault(answer.total, buckets, processes)


def end_fault(
    end: SliceEnd,
    *,
    go: int,
    upto: int,
    longest_s: float,
    workflows: Collection[str],
    buckets: range,
    processes: range,
) -> str:
    """Of the end of a go. `longest_s`: how long it can have been under load."""
    if end.go != go:
        return f"it is of go {end.go}, and not of {go}"
    if fault := _windows_fault(end.windows, upto):
        return fault
    if end.total is not None and (fault := _sum_fault(end.total, buckets, processes)):
        return fault
    if len(end.reports) > len(processes):
        return f"{len(end.reports)} reports of {len(processes)} processes"
    for report in end.reports:
        if fault := _report_fault(report, longest_s, workflows):
            return fault
    return ""


def _sum_fault(window: Window, buckets: range, processes: range) -> str:
    if fault := window_fault(window):
        return fault
    if window.bucket < buckets.start or window.bucket + window.width > buckets.stop:
        return (
            f"buckets {window.bucket} to {window.bucket + window.width}, not within {buckets.start} to {buckets.stop}"
        )
    if strange := [process for process in window.health if process not in processes]:
        return f"health of process {strange[0]}, which is another slice's"
    return ""


def _windows_fault(windows: int, upto: int) -> str:
    return "" if 0 <= windows <= upto + MOST_AHEAD else f"it has {windows} windows, and {upto} are known"


def _report_fault(report: WorkflowsDone, longest_s: float, workflows: Collection[str]) -> str:
    for name, seconds in (("took", report.took), ("loaded", report.loaded)):
        if not 0.0 <= seconds <= longest_s:
            return f"{name} is {seconds} s"
    if not 0.0 <= report.late_s <= _MOST_S:
        return f"late_s is {report.late_s}"
    for workflow, own in report.workflows.items():
        if workflow not in workflows:
            return f"a report of {workflow}, which it did not run"
        counts = {name: getattr(own.account, name) for name in _ACCOUNT}
        for name, count in {**counts, "iterations": own.iterations, "clean": own.clean, "unmade": own.unmade}.items():
            if not 0 <= count <= MOST_COUNTED:
                return f"{workflow}: {name} is {count}"
    return ""


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and abs(seconds) <= _MOST_S


__all__ = ["STORED_S", "adopted_fault", "beat_fault", "end_fault", "load_buckets", "part_fault"]
