"""One go of a fleet: the workflows of a layer, under load from one instant on, and what follows from the time of its
plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from ..pace import weighted
from ..plan import RunPlan
from ..stats.model import WINDOW_MS, SliceReport, Window
from ..stats.sums import WindowSum
from .messages import StartSlice
from .peer_clock import PeerClock
from .record import LostPart
from .spec import OnLoss

#: what the leader does after it has lost a slice under load
AfterLoss = Literal["replace", "go on", "end"]


class FleetGo:
    """What all slices know of a go. The *time of its plan* is in seconds since its instant; `steady` is the clock of
    the leader."""

    def __init__(
        self,
        number: int,
        workflows: Sequence[str],
        shared: Mapping[str, dict[str, Any]],
        *,
        longest_s: float,
        drain_s: float,
        steady: Callable[[], float],
    ) -> None:
        self.number = number
        self.workflows = list(workflows)
        self.at_s = math.inf
        """the start of the plan, by the clock of the leader"""
        self.wall_s = 0.0
        """the same by its wall clock, from which windows are numbered"""
        self.begin_s = 0.0
        """the time of the plan at which the load begins"""
        self._shared = dict(shared)
        self._longest_s = longest_s
        self._drain_s = drain_s
        self._steady = steady

    def begin(self, *, at_s: float, wall_s: float, begin_s: float = 0.0) -> None:
        """Set the instant. `begin_s`: the time of the plan then."""
        self.at_s, self.wall_s, self.begin_s = at_s - begin_s, wall_s - begin_s, begin_s

    @property
    def now_s(self) -> float:
        """The time of the plan."""
        return self._steady() - self.at_s

    @property
    def planned_s(self) -> float:
        """How long iterations begin; infinite for a number of iterations without a limit."""
        return self._longest_s - self._drain_s

    @property
    def left_s(self) -> float:
        """In how long all of it should be over, with its drain; infinite for a number of iterations without a limit."""
        return max(0.0, self._longest_s - self.now_s)

    def next_window_s(self, after_s: float) -> float:
        """The time of the plan at which the first window begins that is this far ahead."""
        return math.ceil((self.now_s + after_s) * 1000 / WINDOW_MS) * WINDOW_MS / 1000

    def order(self, clock: PeerClock, *, begin_s: float = 0.0, done: Mapping[str, int] | None = None) -> StartSlice:
        """The order to a slice with this clock."""
        return StartSlice(
            go=self.number,
            workflows=self.workflows,
            shared=self._shared,
            at_s=self.at_s + begin_s + clock.offset_s,
            wall=self.wall_s + begin_s,
            longest_s=self._longest_s - begin_s,
            drain_s=self._drain_s,
            begin_s=begin_s,
            done=dict(done or {}),
            doubt_s=clock.doubt_s,
        )


def after_loss(on_loss: OnLoss, *, is_ending: bool, begin_s: float, planned_s: float) -> AfterLoss:
    """What to do about a slice that was lost under load, if a replacement could begin at this time of the plan.
    `is_ending`: the run was stopped, so nothing begins any more.

    >>> after_loss("replace", is_ending=False, begin_s=12.0, planned_s=60.0)
    'replace'
    >>> after_loss("replace", is_ending=False, begin_s=60.0, planned_s=60.0)
    'go on'
    >>> after_loss("fail", is_ending=False, begin_s=12.0, planned_s=60.0)
    'end'
    """
    if is_ending or on_loss == "continue":
        return "go on"
    if on_loss in ("fail", "restart"):
        return "end"
    return "go on" if begin_s >= planned_s else "replace"


def begun_by_workflow(total: Window | None, workflows: Sequence[str], plan: RunPlan) -> dict[str, int]:
    """The started iterations of workflows with a fixed number of them. Windows have one count for all workflows: the
    results of steps tell them apart. Iterations under way, which have few results, are divided in proportion."""
    fixed = [name for name in workflows if plan.workflows[name].iterations is not None]
    if total is None or not fixed:
        return {}
    if len(workflows) == 1:
        return {fixed[0]: total.begun}
    sums = WindowSum()
    sums.add(total)
    seen = dict.fromkeys(workflows, 0)
    for (workflow, _), step in sums.steps.items():
        results = step.ok.count + step.failed.count + step.raised - step.raised_after + step.skipped
        seen[workflow] = max(seen.get(workflow, 0), results)
    under_way = weighted(max(0, total.begun - sum(seen.values())), list(seen.values()))
    begun = {name: known + more for (name, known), more in zip(seen.items(), under_way, strict=True)}
    return {name: begun[name] for name in fixed}


def done_before(lost: Sequence[LostPart], go: int, number: int) -> dict[str, int]:
    """By workflow: iterations that lost assignments of a slice began in a go."""
    done: dict[str, int] = {}
    for part in lost:
        if part.go == go and part.report.slice == number:
            for name, begun in part.begun.items():
                done[name] = done.get(name, 0) + begun
    return done


def merged_reports(reports: Sequence[SliceReport]) -> list[SliceReport]:
    """One report for each assignment of a slice, from those of each go, in their order."""
    by_assignment: dict[tuple[int, int], list[SliceReport]] = {}
    for report in reports:
        by_assignment.setdefault((report.slice, report.token), []).append(report)
    return [_merged(by_assignment[key]) for key in sorted(by_assignment)]


def _merged(reports: Sequence[SliceReport]) -> SliceReport:
    last = reports[-1]
    if len(reports) == 1:
        return last
    return SliceReport(
        slice=last.slice,
        token=last.token,
        node=last.node,
        processes=last.processes,
        requests=sum(one.requests for one in reports),
        failed=sum(one.failed for one in reports),
        begin_s=reports[0].begin_s,
        end_s=last.end_s,
        clock_doubt_s=max((one.clock_doubt_s for one in reports if one.clock_doubt_s is not None), default=None),
        start_late_s=max(one.start_late_s for one in reports),
        windows=sum(one.windows for one in reports),
        late_windows=sum(one.late_windows for one in reports),
        repaired_windows=sum(one.repaired_windows for one in reports),
        repeated_windows=sum(one.repeated_windows for one in reports),
        loss=last.loss,
        gap_s=sum(one.gap_s for one in reports),
        stop=last.stop,
    )


def with_gaps(lost: Sequence[LostPart], go: int, tokens: Sequence[int], until_s: float) -> list[LostPart]:
    """The lost parts, at the end of a go: nothing took the place of those that are the last of their slice."""
    return [
        with_gap(part, until_s) if part.go == go and tokens[part.report.slice] == part.report.token else part
        for part in lost
    ]


def with_gap(part: LostPart, until_s: float) -> LostPart:
    """A lost part whose share of the load was missing until this time of the plan."""
    gap_s = round(max(0.0, until_s - (part.report.end_s or 0.0)), 3)
    return replace(part, report=replace(part.report, gap_s=gap_s))


__all__ = [
    "AfterLoss",
    "FleetGo",
    "after_loss",
    "begun_by_workflow",
    "done_before",
    "merged_reports",
    "with_gap",
    "with_gaps",
]
