"""The state of a load test while it runs, for the live displays.

Adding a moment must cost next to nothing: it happens ten times a second, in the process that collects the windows.
Percentiles are computed only when a frame is drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..report.words import one_line
from ..stats.histogram import Histogram
from ..stats.model import WINDOW_MS, Header, Health, Latency, Moment, StepStats, ThresholdOutcome, Trust, Window
from .plot import Slice

#: slices that are kept; neighbours are joined beyond that, so that a run of days needs no more memory
_SLICES = 600
_SLICE_S = 1.0
#: the length of "now"
_NOW_S = 2.0
_KINDS = 200


class StepRow(NamedTuple):
    """A step, over the run so far."""

    name: str
    requests: int
    failed: int
    skipped: int
    rate: float
    """now"""
    latency: Latency | None


class CallCounts:
    """Calls of one or several steps, added up."""

    __slots__ = ("failed", "intended", "raised", "requests", "skipped", "values")

    def __init__(self) -> None:
        self.requests = self.failed = self.raised = self.skipped = 0
        self.intended = False
        """times are counted from the intended start: an open model"""
        self.values = Histogram()

    def add(self, stats: StepStats) -> None:
        failed = stats.failed.count if stats.failed is not None else 0
        self.requests += failed + (stats.ok.count if stats.ok is not None else 0)
        self.failed += failed
        self.raised += max(0, sum(stats.errors.values()) - failed)
        self.skipped += stats.skipped
        self.intended = self.intended or stats.response is not None
        # from the intended start, if there is one: the wait before a call is part of its time
        for sketch in (stats.ok, stats.failed) if stats.response is None else (stats.response,):
            if sketch is not None:
                self.values.merge(sketch)


class _Stretch:
    """A part of the run, as one slice of the plot."""

    __slots__ = ("at_s", "drawn", "until_s", "values")

    def __init__(self, at_s: float) -> None:
        self.at_s = self.until_s = at_s
        self.values = Histogram()
        self.drawn: Slice | None = None

    def slice(self) -> Slice | None:
        """The slice; computed once."""
        if self.drawn is None and self.values.count:
            p50, p99 = self.values.percentile(0.5), self.values.percentile(0.99)
            self.drawn = Slice(self.at_s, max(self.until_s - self.at_s, WINDOW_MS / 1000), p50 or 0.0, p99 or 0.0)
        return self.drawn


class _Recent(NamedTuple):
    width_s: float
    calls: CallCounts
    requests: dict[str, int]
    """by step"""


class LiveState:
    """A run so far."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.phase = "preparing"
        self.elapsed_s = 0.0
        self.users = 0
        self.thresholds: list[ThresholdOutcome] = []
        self.trust = Trust()
        self._stretches: list[_Stretch] = []
        self._slice_s = _SLICE_S
        self._several = len(header.workflows) > 1
        self._order = {name: place for place, name in enumerate(self._declared())}
        self._begin()

    def _begin(self) -> None:
        """Count from zero."""
        self.iterations = self.dropped = self.aborted = 0
        self.checks_passed = self.checks_failed = 0
        self.calls = CallCounts()
        self.health: dict[int, Health] = {}
        self._steps: dict[str, CallCounts] = {}
        self._errors: dict[str, int] = {}
        self._examples: dict[str, str] = {}
        self._recent: deque[_Recent] = deque()

    def add(self, moment: Moment) -> None:
        """Add a window, and what was decided after it."""
        window = moment.window
        if moment.restart:
            self._begin()
        self.phase, self.elapsed_s = moment.phase, moment.elapsed_s
        self.thresholds, self.trust = moment.thresholds, moment.trust
        self.users = window.users
        self.iterations += window.iterations
        self.dropped += window.dropped
        self.aborted += window.aborted
        self.health.update(window.health)
        for check in window.checks:
            self.checks_passed += check.passed
            self.checks_failed += check.failed
        self._add_errors(window)
        # the plot keeps what was drawn: a sum has no curve
        self._add_calls(window, is_drawn=not moment.restart or not self._stretches)

    @property
    def rate(self) -> float:
        """Requests a second, now."""
        return sum(each.calls.requests for each in self._recent) / self._recent_s()

    @property
    def mean_rate(self) -> float:
        return self.calls.requests / self.elapsed_s if self.elapsed_s else 0.0

    def latency_now(self) -> Latency | None:
        values = Histogram()
        for each in self._recent:
            values.merge(each.calls.values)
        return values.latency()

    def steps(self) -> list[StepRow]:
        """In the order of the file, so that a row stays where it is."""
        recent_s = self._recent_s()
        rows = []
        for name in sorted(self._steps, key=lambda each: (self._order.get(each, len(self._order)), each)):
            calls = self._steps[name]
            now = sum(each.requests.get(name, 0) for each in self._recent) / recent_s
            rows.append(StepRow(name, calls.requests, calls.failed, calls.skipped, now, calls.values.latency()))
        return rows

    def errors(self) -> list[tuple[str, int, str]]:
        """Kind, count and an example; the most frequent first."""
        return [
            (kind, count, self._examples.get(kind, ""))
            for kind, count in sorted(self._errors.items(), key=lambda each: (-each[1], each[0]))
        ]

    def slices(self) -> list[Slice]:
        """The run as the plot draws it."""
        return [drawn for each in self._stretches if (drawn := each.slice()) is not None]

    def _add_calls(self, window: Window, *, is_drawn: bool) -> None:
        width_s = window.width * WINDOW_MS / 1000
        recent = _Recent(width_s, CallCounts(), {})
        for stats in window.steps:
            name = self._name(stats.workflow, stats.step)
            before = recent.calls.requests
            for calls in (self.calls, recent.calls, self._steps.setdefault(name, CallCounts())):
                calls.add(stats)
            recent.requests[name] = recent.calls.requests - before
        if is_drawn:
            self._stretch(max(0.0, self.elapsed_s - width_s), self.elapsed_s).values.merge(recent.calls.values)
        self._recent.append(recent)
        while len(self._recent) > 1 and self._recent_s() > _NOW_S + 1e-6:
            self._recent.popleft()

    def _recent_s(self) -> float:
        return sum(each.width_s for each in self._recent) or 1.0

    def _add_errors(self, window: Window) -> None:
        for stats in window.steps:
            for kind, count in stats.errors.items():
                name = one_line(kind, 80)
                if name in self._errors or len(self._errors) < _KINDS:
                    self._errors[name] = self._errors.get(name, 0) + count
        for kind, example in window.examples.items():
            if len(self._examples) < _KINDS:
                self._examples.setdefault(one_line(kind, 80), one_line(example, 200))

    def _name(self, workflow: str, step: str) -> str:
        return one_line(f"{workflow}.{step}" if self._several else step, 80)

    def _declared(self) -> Iterator[str]:
        for workflow in self.header.workflows:
            for step in workflow.get("steps", ()):
                yield self._name(str(workflow.get("name", "")), str(step["name"]))

    def _stretch(self, from_s: float, until_s: float) -> _Stretch:
        """The current stretch, which now reaches until `until_s`."""
        if not self._stretches or until_s - self._stretches[-1].at_s > self._slice_s + 1e-6:
            if len(self._stretches) >= _SLICES:
                self._stretches = list(_joined(self._stretches))
                self._slice_s *= 2
            self._stretches.append(_Stretch(from_s))
        stretch = self._stretches[-1]
        stretch.until_s, stretch.drawn = max(stretch.until_s, until_s), None
        return stretch


def _joined(stretches: Iterable[_Stretch]) -> Iterator[_Stretch]:
    pairs = iter(stretches)
    for first in pairs:
        second = next(pairs, None)
        if second is not None:
            first.values.merge(second.values)
            first.until_s, first.drawn = second.until_s, None
        yield first


def is_broken(threshold: ThresholdOutcome) -> bool:
    """Whether a threshold is broken now; one without a value is not."""
    return not threshold.passed and not threshold.pending and threshold.value is not None


def reasons_of(trust: Trust) -> list[str]:
    """Why a result is not trustworthy."""
    return trust.reasons or ["the generator itself is the bottleneck"]
