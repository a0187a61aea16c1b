"""Compares two runs: what got better, what got worse, and whether they are comparable at all.

`changes` has the rule for each number. It knows the random variation within a run; two runs of the same test can differ
more, so an important result deserves a second run.
"""

from __future__ import annotations

import msgspec

from ...clock import duration_text
from ..stats.model import Header, StepStats, StepSummary, Summary
from .changes import Counted, MetricChange, failed_change, rate_change, time_changes

TOLERANCE = 0.10
#: runs whose lengths differ by more than this share are not comparable
_LENGTH = 0.2
#: "workflow.step", or empty for all steps -> histogram of times
Histograms = dict[str, list[tuple[float, float, int]]]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run, and more than its summary if it is known."""

    summary: Summary
    service: Histograms = {}
    response: Histograms = {}
    steps: list[StepStats] | None = None
    """with all their histograms; None if they are not known"""
    note: str = ""
    """a remark about how it was read, for example that the recording is torn"""


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step in both runs; `step` is empty for all steps together."""

    workflow: str
    step: str
    changes: list[MetricChange]

    @property
    def name(self) -> str:
        return f"{self.workflow}.{self.step}" if self.step else "all steps"


class Comparison(msgspec.Struct, kw_only=True):
    """The result of a comparison. `comparable`, `worse` and `unclear` decide the exit code of the command."""

    a: Header
    """the earlier run"""
    b: Header
    tolerance: float
    comparable: bool
    reasons: list[str]
    """why they are not comparable; the numbers are shown, but not judged"""
    notes: list[str]
    steps: list[StepChange]
    only_a: list[str]
    only_b: list[str]
    better: int
    worse: int
    unclear: int = 0
    """numbers that got worse, with too few requests to tell whether that was chance"""

    @property
    def undecided(self) -> bool:
        """Whether the comparison has no result: the runs are not comparable, or have too few requests."""
        return not self.comparable or (self.unclear > 0 and not self.worse)

    @property
    def exit_code(self) -> int:
        """97 without a result, 1 if something got worse by more than the tolerance, else 0."""
        return 97 if self.undecided else 1 if self.worse else 0


def compare(a: Summary | Run, b: Summary | Run, *, tolerance: float = TOLERANCE) -> Comparison:
    """Compare run `b` with the earlier run `a`."""
    first, second = as_run(a), as_run(b)
    before, after = ({_key(one): one for one in run.summary.steps if one.requests} for run in (first, second))
    steps = [
        StepChange(
            workflow="", step="", changes=_changes(first.summary, second.summary, first, second, tolerance=tolerance)
        )
    ]
    for key, one in before.items():
        if key in after:
            changes = _changes(one, after[key], first, second, key, tolerance=tolerance)
            steps.append(StepChange(workflow=one.workflow, step=one.step, changes=changes))
    reasons = _reasons(first.summary, second.summary)
    if reasons:
        steps = [msgspec.structs.replace(one, changes=[_unjudged(change) for change in one.changes]) for one in steps]
    changes = [change for step in steps for change in step.changes]
    judged = [change.judgement for change in changes]
    return Comparison(
        a=first.summary.header,
        b=second.summary.header,
        tolerance=tolerance,
        comparable=not reasons,
        reasons=reasons,
        notes=[f"{which}: {run.note}" for which, run in (("A", first), ("B", second)) if run.note],
        steps=steps,
        only_a=[key for key in before if key not in after],
        only_b=[key for key in after if key not in before],
        better=judged.count("better"),
        worse=judged.count("worse"),
        unclear=0 if reasons else sum(one.judgement == "unclear" and one.direction == "worse" for one in changes),
    )


def as_run(given: Summary | Run) -> Run:
    """A summary as a run, with the histograms that it has itself."""
    if isinstance(given, Run):
        return given
    service, response = (
        {"": list(buckets)} if buckets else {} for buckets in (given.distribution, given.response_distribution)
    )
    return Run(summary=given, service=service, response=response)


def _key(one: StepSummary) -> str:
    return f"{one.workflow}.{one.step}"


def _changes(a: Counted, b: Counted, first: Run, second: Run, key: str = "", *, tolerance: float) -> list[MetricChange]:
    if not a.requests:
        return []
    if not b.requests:  # no rate is worse, and there are no times to compare
        return [rate_change(a, b, tolerance)]
    changes = [rate_change(a, b, tolerance), failed_change(a, b, tolerance)]
    if a.service is not None and b.service is not None:
        changes += time_changes(a.service, b.service, (first.service.get(key), second.service.get(key)), tolerance)
    if a.response is not None and b.response is not None:
        histograms = first.response.get(key), second.response.get(key)
        changes += time_changes(a.response, b.response, histograms, tolerance, "response ")
    return changes


def _unjudged(change: MetricChange) -> MetricChange:
    """A number of runs that are not comparable: a difference is neither better nor worse."""
    if change.direction == "none":
        return change
    return msgspec.structs.replace(change, judgement="unclear", note="runs not comparable")


def _reasons(a: Summary, b: Summary) -> list[str]:
    reasons = []
    for run, name in ((a, "A"), (b, "B")):
        if not run.trust.ok:
            reasons.append(f"{name} is not trustworthy: {'; '.join(run.trust.reasons) or 'no reason given'}")
        if run.ended != "finished":
            reasons.append(f"{name} did not finish: {run.ended}")
        if not run.requests:
            reasons.append(f"{name} measured nothing")
    models = [{str(one.get("name")): str(one.get("model")) for one in run.header.workflows} for run in (a, b)]
    for name in dict.fromkeys([*models[0], *models[1]]):
        one, other = models[0].get(name), models[1].get(name)
        if one is None or other is None:
            reasons.append(f"only {'A' if other is None else 'B'} has the workflow {name}")
        elif one != other:
            reasons.append(f"{name} ran under different load: {one} in A, {other} in B")
    short, long = sorted((a.elapsed_s, b.elapsed_s))
    if long - short > _LENGTH * long:
        took = [duration_text(round(run.elapsed_s, 1)) for run in (a, b)]
        reasons.append(f"A took {took[0]} and B {took[1]}")
    return reasons
