"""What the live view has seen of a load test: kept as moments come in, and told as a picture when one is drawn.

Taking a moment in must cost next to nothing, for it happens ten times a second beside the collecting of windows.
Percentiles are taken from histograms that were added up, when a picture is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from ..report.words import one_line
from ..stats.histogram import Histogram
from ..stats.model import (
    WINDOW_MS,
    Header,
    Health,
    Latency,
    Moment,
    Sketch,
    StepStats,
    ThresholdOutcome,
    Trust,
    Window,
)
from .plot import Slice

#: slices that are kept; neighbours are put together when there are more, so that a run of days needs no more memory
_SLICES = 600
_SLICE_S = 1.0
#: what "now" means
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


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands, as far as it is drawn."""

    header: Header
    phase: str
    elapsed_s: float
    users: int
    rate: float
    """now"""
    mean: float
    requests: int
    failed: int
    raised: int = 0
    """times that the code of a step raised"""
    failed_rate: float
    """now"""
    iterations: int
    dropped: int
    aborted: int
    checks: tuple[int, int]
    """passed, failed"""
    intended: bool
    """latencies are counted from the intended start: an open model"""
    now: Latency | None
    total: Latency | None
    steps: list[StepRow]
    errors: list[tuple[str, int, str]]
    """kind, how many, what one of them said; the most frequent first"""
    thresholds: list[ThresholdOutcome]
    trust: Trust
    health: dict[int, Health]
    slices: list[Slice]


class _Stretch:
    """A part of the run that is over, or going on."""

    __slots__ = ("at_s", "drawn", "until_s", "values")

    def __init__(self, at_s: float) -> None:
        self.at_s = self.until_s = at_s
        self.values = Histogram()
        self.drawn: Slice | None = None

    def slice(self) -> Slice | None:
        """What is drawn of it; reckoned once."""
        if self.drawn is None and self.values.count:
            p50, p99 = self.values.percentile(0.5), self.values.percentile(0.99)
            self.drawn = Slice(self.at_s, max(self.until_s - self.at_s, WINDOW_MS / 1000), p50 or 0.0, p99 or 0.0)
        return self.drawn


class _Step:
    __slots__ = ("failed", "requests", "skipped", "values")

    def __init__(self) -> None:
        self.requests = self.failed = self.skipped = 0
        self.values = Histogram()


class _Recent(NamedTuple):
    width_s: float
    requests: int
    failed: int
    steps: dict[str, int]
    values: Histogram


class Watched:
    """A run, as it is seen."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self._last: Moment | None = None
        self._users = 0
        self._requests = self._failed = self._raised = self._iterations = self._dropped = self._aborted = 0
        self._checked = [0, 0]
        self._intended = False
        self._total = Histogram()
        self._steps: dict[str, _Step] = {}
        self._errors: dict[str, int] = {}
        self._examples: dict[str, str] = {}
        self._health: dict[int, Health] = {}
        self._recent: deque[_Recent] = deque()
        self._stretches: list[_Stretch] = []
        self._slice_s = _SLICE_S
        self._several = len(header.workflows) > 1
        self._order = {name: place for place, name in enumerate(self._declared())}

    def add(self, moment: Moment) -> None:
        """Take it in."""
        window, self._last = moment.window, moment
        width_s = window.width * WINDOW_MS / 1000
        self._users = window.users
        self._iterations += window.iterations
        self._dropped += window.dropped
        self._aborted += window.aborted
        self._health.update(window.health)
        for check in window.checks:
            self._checked[0] += check.passed
            self._checked[1] += check.failed
        requests, failed, values = self._requests, self._failed, Histogram()
        steps = {self._name(stats): self._add_step(stats, values) for stats in window.steps}
        self._total.merge(values)
        self._stretch(max(0.0, moment.elapsed_s - width_s), moment.elapsed_s).values.merge(values)
        self._tell_errors(window)
        self._recent.append(_Recent(width_s, self._requests - requests, self._failed - failed, steps, values))
        while len(self._recent) > 1 and sum(each.width_s for each in self._recent) > _NOW_S + 1e-6:
            self._recent.popleft()

    def picture(self) -> Picture:
        """How it stands."""
        last = self._last
        elapsed_s = 0.0 if last is None else last.elapsed_s
        recent_s = sum(each.width_s for each in self._recent) or 1.0
        return Picture(
            header=self.header,
            phase="preparing" if last is None else last.phase,
            elapsed_s=elapsed_s,
            users=self._users,
            rate=sum(each.requests for each in self._recent) / recent_s,
            mean=self._requests / elapsed_s if elapsed_s else 0.0,
            requests=self._requests,
            failed=self._failed,
            raised=self._raised,
            failed_rate=sum(each.failed for each in self._recent) / recent_s,
            iterations=self._iterations,
            dropped=self._dropped,
            aborted=self._aborted,
            checks=(self._checked[0], self._checked[1]),
            intended=self._intended,
            now=self._now(),
            total=self._total.latency(),
            steps=[self._row(name, self._steps[name], recent_s) for name in sorted(self._steps, key=self._place)],
            errors=[
                (kind, n, self._examples.get(kind, ""))
                for kind, n in sorted(self._errors.items(), key=lambda each: (-each[1], each[0]))
            ],
            thresholds=[] if last is None else last.thresholds,
            trust=Trust() if last is None else last.trust,
            health=self._health,
            slices=[drawn for each in self._stretches if (drawn := each.slice()) is not None],
        )

    def _add_step(self, stats: StepStats, values: Histogram) -> int:
        step = self._steps.setdefault(self._name(stats), _Step())
        failed = stats.failed.count if stats.failed is not None else 0
        requests = failed + (stats.ok.count if stats.ok is not None else 0)
        step.requests += requests
        step.failed += failed
        step.skipped += stats.skipped
        self._requests += requests
        self._failed += failed
        self._raised += max(0, sum(stats.errors.values()) - failed)
        self._intended = self._intended or stats.response is not None
        for sketch in _latencies(stats):
            step.values.merge(sketch)
            values.merge(sketch)
        return requests

    def _tell_errors(self, window: Window) -> None:
        for stats in window.steps:
            for kind, n in stats.errors.items():
                told = one_line(kind, 80)
                if told in self._errors or len(self._errors) < _KINDS:
                    self._errors[told] = self._errors.get(told, 0) + n
        for kind, said in window.examples.items():
            if len(self._examples) < _KINDS:
                self._examples.setdefault(one_line(kind, 80), one_line(said, 200))

    def _name(self, stats: StepStats) -> str:
        return self._called(stats.workflow, stats.step)

    def _called(self, workflow: str, step: str) -> str:
        return one_line(f"{workflow}.{step}" if self._several else step, 80)

    def _declared(self) -> Iterator[str]:
        """The steps in the order of the file: so a row stays where it is."""
        for workflow in self.header.workflows:
            for step in workflow.get("steps", ()):
                yield self._called(str(workflow.get("name", "")), str(step["name"]))

    def _place(self, name: str) -> tuple[int, str]:
        return self._order.get(name, len(self._order)), name

    def _row(self, name: str, step: _Step, recent_s: float) -> StepRow:
        now = sum(each.steps.get(name, 0) for each in self._recent) / recent_s
        return StepRow(name, step.requests, step.failed, step.skipped, now, step.values.latency())

    def _now(self) -> Latency | None:
        values = Histogram()
        for each in self._recent:
            values.merge(each.values)
        return values.latency()

    def _stretch(self, from_s: float, until_s: float) -> _Stretch:
        """The one that is going on."""
        if not self._stretches or until_s - self._stretches[-1].at_s > self._slice_s + 1e-6:
            if len(self._stretches) >= _SLICES:
                self._stretches = list(_joined(self._stretches))
                self._slice_s *= 2
            self._stretches.append(_Stretch(from_s))
        stretch = self._stretches[-1]
        stretch.until_s, stretch.drawn = max(stretch.until_s, until_s), None
        return stretch


def _latencies(stats: StepStats) -> Iterator[Sketch]:
    """Since the intended start where there is one: what waited for its turn belongs to it."""
    if stats.response is not None:
        yield stats.response
        return
    for sketch in (stats.ok, stats.failed):
        if sketch is not None:
            yield sketch


def _joined(stretches: Iterable[_Stretch]) -> Iterator[_Stretch]:
    pairs = iter(stretches)
    for first in pairs:
        second = next(pairs, None)
        if second is not None:
            first.values.merge(second.values)
            first.until_s, first.drawn = second.until_s, None
        yield first
