"""Sums of windows over processes, over time, or both: the base of `merge_windows` and `RunTally`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from .histogram import SketchSum, merged
from .model import CheckStats, Health, MetricStats, Sketch, StepStats, Window

#: counts of a window that are added
COUNTS = (
    "begun", "iterations", "failed_iterations", "aborted_iterations", "arrivals", "dropped", "unbegun", "refused_users",
    "aborted", "aborted_sent", "aborted_received", "sent_calls", "answered_calls", "resent_calls", "unexpected",
)  # fmt: skip
#: the process of a window that is merged over several processes
_SEVERAL = -1
#: the name for kinds beyond the limit
OTHERS = "(others)"


class StepSum:
    """The sum of a step over windows."""

    __slots__ = (
        "errors", "examples", "failed", "ok", "phases", "raised_after", "raised_after_failed", "received", "response",
        "sent", "skipped", "statuses", "step", "workflow",
    )  # fmt: skip

    def __init__(self, workflow: str, step: str) -> None:
        self.workflow = workflow
        self.step = step
        self.ok = SketchSum()
        self.failed = SketchSum()
        self.response = SketchSum()
        self.phases: dict[str, SketchSum] = {}
        self.statuses: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.examples: dict[str, str] = {}
        self.raised_after = 0
        self.raised_after_failed = 0
        self.skipped = 0
        self.sent = 0
        self.received = 0

    def add(self, stats: StepStats, most: int | None) -> None:
        self.ok.add(stats.ok)
        self.failed.add(stats.failed)
        self.response.add(stats.response)
        for phase, sketch in stats.phases.items():
            self.phases.setdefault(phase, SketchSum()).add(sketch)
        _count(self.statuses, stats.statuses, most)
        _count(self.errors, stats.errors, most)
        for kind, text in stats.examples.items():
            _add_example(self.examples, kind, text, most)
        self.raised_after += stats.raised_after
        self.raised_after_failed += stats.raised_after_failed
        self.skipped += stats.skipped
        self.sent += stats.sent
        self.received += stats.received

    def service(self) -> Sketch | None:
        """The service times of all results, failed ones too."""
        return merged((self.ok.sketch(), self.failed.sketch()))

    @property
    def raised(self) -> int:
        """How often the code of the step raised."""
        return max(0, sum(self.errors.values()) - self.failed.count)

    @property
    def error_rate(self) -> float:
        """Failures and exceptions as a share of all requests and of exceptions without a request. A failed response
        that made the step raise counts once."""
        return error_rate([self])

    def stats(self) -> StepStats:
        sketches = {phase: times.sketch() for phase, times in sorted(self.phases.items())}
        return StepStats(
            workflow=self.workflow,
            step=self.step,
            ok=self.ok.sketch(),
            failed=self.failed.sketch(),
            response=self.response.sketch(),
            phases={phase: sketch for phase, sketch in sketches.items() if sketch is not None},
            statuses=_sorted(self.statuses),
            errors=_sorted(self.errors),
            examples=dict(sorted(self.examples.items())),
            raised_after=self.raised_after,
            raised_after_failed=self.raised_after_failed,
            skipped=self.skipped,
            sent=self.sent,
            received=self.received,
        )


def error_rate(steps: Iterable[StepSum]) -> float:
    """Of several steps together; see `StepSum.error_rate`."""
    bad = tried = 0
    for step in steps:
        bad += step.failed.count + step.raised - step.raised_after_failed
        tried += step.ok.count + step.failed.count + step.raised - step.raised_after
    return bad / tried if tried else 0.0


class MetricSum:
    """The sum of a custom metric over windows."""

    __slots__ = ("count", "high", "last", "low", "metric", "total", "until", "values")

    def __init__(self, metric: MetricStats) -> None:
        self.metric = metric
        """of the first window: name, type and tags are the same in all"""
        self.total = 0.0
        self.count = 0
        self.low = float("inf")
        self.high = float("-inf")
        self.last = 0.0
        self.until = -1
        self.values = SketchSum()

    def add(self, stats: MetricStats, until: int) -> None:
        if stats.count:
            self.low = min(self.low, stats.low)
            self.high = max(self.high, stats.high)
        self.count += stats.count
        self.total += stats.total
        # gauges that several processes set in the same window have no order: any deterministic rule would do
        if until > self.until or (until == self.until and stats.total > self.last):
            self.until, self.last = until, stats.total
        self.values.add(stats.values)

    def stats(self) -> MetricStats:
        return replace(
            self.metric,
            total=self.last if self.metric.type == "gauge" else self.total,
            count=self.count,
            low=self.low if self.count else 0.0,
            high=self.high if self.count else 0.0,
            values=self.values.sketch(),
        )


class _HealthSum:
    """The health of a process over windows: its worst values, but the mean of its CPU (a tenth of a second at full CPU
    says little) and the sum of its waits."""

    __slots__ = ("_buckets", "_sum", "_used")

    def __init__(self) -> None:
        self._sum = Health()
        self._used = 0.0
        self._buckets = 0

    def add(self, health: Health, buckets: int) -> None:
        total = self._sum
        total.node = max(total.node, health.node)
        total.lag = max(total.lag, health.lag)
        total.waited += health.waited
        total.throttled += health.throttled
        total.memory = max(total.memory, health.memory)
        total.files = max(total.files, health.files)
        total.files_limit = max(total.files_limit, health.files_limit)
        self._used += health.cpu * buckets
        self._buckets += buckets

    def health(self) -> Health:
        return replace(self._sum, cpu=self._used / self._buckets if self._buckets else 0.0)


class WindowSum:
    """Adds windows. `most`: how many statuses, kinds of errors and reasons are counted separately; None: all."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self.first = -1
        """the first bucket"""
        self.end = -1
        """the bucket after the last"""
        self._processes: dict[int, tuple[int, int]] = {}
        self.draining = False
        self.counts = dict.fromkeys(COUNTS, 0)
        """by the names that they have in a window"""
        self.steps: dict[tuple[str, str], StepSum] = {}
        self.checks: dict[tuple[str, str], CheckStats] = {}
        self.metrics: dict[tuple[object, ...], MetricSum] = {}
        self.examples: dict[str, str] = {}
        self._health: dict[int, _HealthSum] = {}

    def add(self, window: Window) -> None:
        end = window.bucket + window.width
        self.first = window.bucket if self.end < 0 else min(self.first, window.bucket)
        self.end = max(self.end, end)
        until, users = self._processes.get(window.process, (-1, 0))
        if (end, window.users) > (until, users):
            self._processes[window.process] = (end, window.users)
        self.draining = self.draining or window.draining
        counts = self.counts
        for count in COUNTS:
            counts[count] += getattr(window, count)
        for step in window.steps:
            key = (step.workflow, step.step)
            if key not in self.steps:
                self.steps[key] = StepSum(*key)
            self.steps[key].add(step, self._most)
        for check in window.checks:
            self._add_check(check)
        for metric in window.metrics:
            name = (metric.name, metric.type, *sorted(metric.tags.items()))
            if name not in self.metrics:
                self.metrics[name] = MetricSum(metric)
            self.metrics[name].add(metric, end)
        for kind, text in window.examples.items():
            _add_example(self.examples, kind, text, self._most)
        for process, health in window.health.items():
            self._health.setdefault(process, _HealthSum()).add(health, window.width)

    def _add_check(self, check: CheckStats) -> None:
        known = self.checks.setdefault(
            (check.workflow, check.step), CheckStats(workflow=check.workflow, step=check.step)
        )
        known.passed += check.passed
        known.failed += check.failed
        known.skipped += check.skipped
        _count(known.reasons, check.reasons, self._most)

    @property
    def users(self) -> int:
        """The users of each process at its last window. A merged window covers all processes: it includes earlier
        windows of each, and a process that is missing in a later one has no users left."""
        together, users = self._processes.get(_SEVERAL, (-1, 0))
        alone = [own for process, own in self._processes.items() if process != _SEVERAL]
        if any(until > together for until, _ in alone):
            return sum(own for until, own in alone if until > together)
        return users + sum(own for until, own in alone if until == together)

    def window(self) -> Window:
        """The sum, as one window."""
        processes = list(self._processes)
        return Window(
            bucket=self.first,
            width=self.end - self.first,
            adopted=False,
            process=processes[0] if len(processes) == 1 else _SEVERAL,
            users=self.users,
            draining=self.draining,
            **self.counts,
            steps=[self.steps[key].stats() for key in sorted(self.steps)],
            checks=[replace(check, reasons=_sorted(check.reasons)) for _, check in sorted(self.checks.items())],
            metrics=[self.metrics[key].stats() for key in sorted(self.metrics, key=repr)],
            examples=dict(sorted(self.examples.items())),
            health={process: self._health[process].health() for process in sorted(self._health)},
        )


def _add_example(examples: dict[str, str], kind: str, text: str, most: int | None) -> None:
    # the minimum, not the first: so the order of windows does not matter
    if kind in examples:
        examples[kind] = min(examples[kind], text)
    elif most is None or len(examples) < most:
        examples[kind] = text


def _count(known: dict[str, int], more: Mapping[str, int], most: int | None) -> None:
    for kind, n in more.items():
        name = kind if most is None or kind in known or len(known) < most else OTHERS
        known[name] = known.get(name, 0) + n


def _sorted(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))
