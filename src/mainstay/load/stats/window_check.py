"""Whether a window that another machine has sent can be true. One that cannot must not be merged: it would end the run
of all, or make its numbers meaningless."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from operator import lt

from .histogram import LARGEST, number_of
from .model import PHASES, CheckStats, Health, MetricStats, Sketch, StepStats, Window
from .sums import COUNTS

#: of each count: sums of a long run stay below the largest number of a message, 2**64
MOST_COUNTED = 1 << 48

_PHASES = frozenset(PHASES)


def window_fault(window: Window) -> str:
    """Why a window cannot be true; empty if it can.

    >>> window_fault(Window(bucket=7, users=3))
    ''
    >>> window_fault(Window(bucket=7, iterations=-1))
    'iterations is -1'
    """
    if not 0 <= window.bucket <= MOST_COUNTED:
        return f"bucket is {window.bucket}"
    if not 1 <= window.width <= MOST_COUNTED:
        return f"width is {window.width}"
    if fault := _counts_fault(*((name, getattr(window, name)) for name in ("users", *COUNTS))):
        return fault
    for step in window.steps:
        if fault := _step_fault(step):
            return f"step {step.workflow}.{step.step}: {fault}"
    for check in window.checks:
        if fault := _check_fault(check):
            return f"check {check.workflow}.{check.step}: {fault}"
    for metric in window.metrics:
        if fault := _metric_fault(metric):
            return f"metric {metric.name}: {fault}"
    return next(
        (f"health of process {at}: {fault}" for at, own in window.health.items() if (fault := _health_fault(own))), ""
    )


def sketch_fault(sketch: Sketch) -> str:
    """The same of a sketch.

    >>> sketch_fault(Sketch(at=[130688], n=[2, 1], count=3, total=0.75, squares=0.2, low=0.25, high=0.25))
    'it has 1 buckets and 2 counts'
    """
    at, n = sketch.at, sketch.n
    if not at or len(at) != len(n):
        return f"it has {len(at)} buckets and {len(n)} counts"
    if not -LARGEST <= sketch.low <= sketch.high <= LARGEST:
        return f"its values are from {sketch.low} to {sketch.high}"
    if at[0] != number_of(sketch.low) or at[-1] != number_of(sketch.high):
        return "its buckets are not those of its lowest and highest value"
    if not all(map(lt, at, islice(at, 1, None))):
        return "its buckets do not rise"
    if min(n) < 1 or sum(n) != sketch.count or sketch.count > MOST_COUNTED:
        return f"its counts do not add up to {sketch.count}"
    if not (math.isfinite(sketch.total) and math.isfinite(sketch.squares)):
        return f"its sums are {sketch.total} and {sketch.squares}"
    return ""


def _step_fault(step: StepStats) -> str:
    if not step.phases.keys() <= _PHASES:
        return f"it has unknown phases: {', '.join(sorted(step.phases.keys() - _PHASES))}"
    for sketch in (step.ok, step.failed, step.response, *step.phases.values()):
        if sketch is not None and (fault := sketch_fault(sketch)):
            return fault
    return _counts_fault(
        ("raised_after", step.raised_after),
        ("raised_after_failed", step.raised_after_failed),
        ("skipped", step.skipped),
        ("sent", step.sent),
        ("received", step.received),
        *step.statuses.items(),
        *step.errors.items(),
    )


def _check_fault(check: CheckStats) -> str:
    return _counts_fault(
        ("passed", check.passed), ("failed", check.failed), ("skipped", check.skipped), *check.reasons.items()
    )


def _metric_fault(metric: MetricStats) -> str:
    if not all(map(math.isfinite, (metric.total, metric.low, metric.high))):
        return "it has a value that is not finite"
    if metric.values is not None and (fault := sketch_fault(metric.values)):
        return fault
    return _count_fault("count", metric.count)


def _health_fault(health: Health) -> str:
    if not all(map(math.isfinite, (health.lag, health.cpu, health.waited, health.throttled))):
        return "it has a value that is not finite"
    # a limit may be "none", which is below zero
    return _counts_fault(("memory", health.memory), ("files", health.files), ("files_limit", abs(health.files_limit)))


def _counts_fault(*counts: tuple[str, int]) -> str:
    return next(filter(None, _faults(counts)), "")


def _faults(counts: Iterable[tuple[str, int]]) -> Iterable[str]:
    return (_count_fault(name, count) for name, count in counts)


def _count_fault(name: str, count: int) -> str:
    return "" if 0 <= count <= MOST_COUNTED else f"{name} is {count}"


__all__ = ["MOST_COUNTED", "sketch_fault", "window_fault"]
