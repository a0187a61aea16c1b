"""Two runs side by side: what got better, what got worse, and whether they can be compared at all.

The rule by which a change is judged is that of `changes`. It knows the chance within a run; two runs of the same test
can differ more, so what matters is worth a second run.
"""

from __future__ import annotations

import msgspec

from ...clock import duration_text
from ..stats.model import Header, StepStats, StepSummary, Summary
from .changes import Counted, MetricChange, failed_change, rate_change, time_changes

TOLERANCE = 0.10
#: runs whose lengths differ by more than this part are said to
_LENGTH = 0.2
#: "workflow.step", or empty for all -> the histogram of its service times
Histograms = dict[str, list[tuple[float, float, int]]]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and what is known of it beyond its summary."""

    summary: Summary
    service: Histograms = {}
    response: Histograms = {}
    steps: list[StepStats] | None = None
    """with all their histograms; None: they are not known"""
    note: str = ""
    """what is to be known of how it was read: torn off, say"""


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step in both runs; `step` is empty for all steps together."""

    workflow: str
    step: str
    changes: list[MetricChange]

    @property
    def name(self) -> str:
        return f"{self.workflow}.{self.step}" if self.step else "all steps"


class Comparison(msgspec.Struct, kw_only=True):
    """What came out. `comparable`, `worse` and `unclear` decide how the command ends."""

    a: Header
    """the run before"""
    b: Header
    tolerance: float
    comparable: bool
    reasons: list[str]
    """why they are not comparable; the numbers are shown, and none of them is judged"""
    notes: list[str]
    steps: list[StepChange]
    only_a: list[str]
    only_b: list[str]
    better: int
    worse: int
    unclear: int = 0
    """numbers that changed for the worse, and that had too few requests to tell whether that was chance"""

    @property
    def undecided(self) -> bool:
        """Whether there is no answer: the runs are not comparable, or have too few requests."""
        return not self.comparable or (self.unclear > 0 and not self.worse)

    @property
    def exit_code(self) -> int:
        """97 if there is no answer, 1 if something got worse by more than the tolerance, else 0."""
        return 97 if self.undecided else 1 if self.worse else 0


def compare(a: Summary | Run, b: Summary | Run, *, tolerance: float = TOLERANCE) -> Comparison:
    """Compare run `b` with run `a`, which came before."""
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
    """With the histogram that a summary has itself."""
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
    if not b.requests:  # that is worse, and nothing else can be said of it
        return [rate_change(a, b, tolerance)]
    found = [rate_change(a, b, tolerance), failed_change(a, b, tolerance)]
    if a.service is not None and b.service is not None:
        found += time_changes(a.service, b.service, (first.service.get(key), second.service.get(key)), tolerance)
    if a.response is not None and b.response is not None:
        histograms = first.response.get(key), second.response.get(key)
        found += time_changes(a.response, b.response, histograms, tolerance, "response ")
    return found


def _unjudged(change: MetricChange) -> MetricChange:
    """A number of runs that are not comparable: a difference is neither good nor bad."""
    if change.direction == "none":
        return change
    return msgspec.structs.replace(change, judgement="unclear", note="runs not comparable")


def _reasons(a: Summary, b: Summary) -> list[str]:
    reasons = []
    for run, name in ((a, "A"), (b, "B")):
        if not run.trust.ok:
            reasons.append(f"{name} is not trustworthy: {'; '.join(run.trust.reasons) or 'it does not say why'}")
        if run.ended != "finished":
            reasons.append(f"{name} did not run to its end: {run.ended}")
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
        reasons.append(f"A took {took[0]}, and B {took[1]}")
    return reasons
