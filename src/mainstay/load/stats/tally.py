"""From windows to the numbers of a run: `merge_windows` for some windows, `RunTally` for a whole run.

A tally keeps sums, never samples: its memory does not grow with the length of the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import sub
from typing import Any

import msgspec

from ...errors import InvalidInput
from .histogram import buckets_of, latency_of, merged, percentiles_of
from .model import (
    WINDOW_MS,
    CheckSummary,
    Header,
    Percentiles,
    Point,
    Sketch,
    StepSummary,
    Summary,
    Window,
)
from .summary import by_number, metric_summary, per, step_summary, tag_summaries
from .sums import StepSum, WindowSum, error_rate

#: buckets of a second, the unit of charts, thresholds and the recorded stream
SECOND = 1000 // WINDOW_MS
#: how far back `RunTally.recent` reaches
RECENT_S = 10
#: points of a chart; a screen can show few more
STRETCHES = 300
#: times of windows are rounded
_GRAIN_S = 0.001
#: statuses, kinds of errors and reasons that a run counts separately; messages may contain anything
KINDS = 100


def merge_windows(windows: Iterable[Window]) -> Window:
    """Merge the windows of all processes, or of a stretch of time, into one.

    Counts and sketches are added; users are those of each process at its last window, gauges the last value; the health
    of a process is its worst values, the mean of its CPU, and the sum of its waits. Merge the processes of a bucket
    first, then buckets; the order of the arguments does not matter.

    >>> merge_windows([Window(bucket=7, process=0, users=3), Window(bucket=7, process=1, users=4)])
    Window(bucket=7, width=1, adopted=False, process=-1, users=7, draining=False, begun=0, iterations=0,
    failed_iterations=0, aborted_iterations=0, arrivals=0, dropped=0, unbegun=0, refused_users=0, aborted=0, aborted_sent=0,
    aborted_received=0, sent_calls=0, answered_calls=0, resent_calls=0, unexpected=0, steps=[], checks=[], metrics=[],
    examples={}, health={})
    """
    fold = WindowSum()
    for window in windows:
        fold.add(window)
    if fold.end < 0:
        raise InvalidInput("windows", "nothing to merge; pass at least one")
    return fold.window()


class RunTally:
    """The numbers of a run so far. Takes windows that are merged over all processes, in the order of their buckets.

    >>> tally = RunTally(Header(run="j1", name="shop", started_ms=0, version="1", processes=1, duration_s=1.0))
    >>> tally.add(Window(bucket=0, iterations=20, users=5))
    >>> summary = tally.summary(verdict="passed")
    >>> summary.iterations, summary.users, summary.requests
    (20, 5, 0)
    """

    def __init__(self, header: Header, *, earlier: Sequence[Point] = ()) -> None:
        """`earlier`: the points of a process that led the run before. It has seen windows that come to this one as one
        sum, which makes a point only for the time since."""
        self._header = header
        self._earlier = list(earlier)
        while len(self._earlier) > STRETCHES:
            self._earlier = _thinned(self._earlier)
        self._since_s = self._earlier[-1].at_s + self._earlier[-1].width_s if self._earlier else 0.0
        """the end of the earlier points"""
        self._recent: deque[Window] = deque()
        self._origin = -1
        self._second = WindowSum()
        self._number = 0
        self._total = WindowSum(most=KINDS)
        self._users = 0
        self._stretches: list[_Stretch] = []
        self._span = 1

    def add(self, window: Window) -> None:
        """Count a window."""
        if self._origin < 0:
            self._origin = window.bucket
        number = (window.bucket - self._origin) // SECOND
        if number > self._number:
            self._close()
            self._number = number
        self._second.add(window)
        self._users = max(self._users, window.users)
        self._recent.append(window)
        while self._recent[0].bucket < window.bucket - RECENT_S * SECOND:
            self._recent.popleft()

    def recent(self, seconds: float) -> Window:
        """The last seconds, up to 10, as one window. Empty before the first."""
        if not self._recent:
            return Window(bucket=0)
        since = self._recent[-1].bucket - round(seconds * SECOND)
        return merge_windows(
            window for at, window in enumerate(self._recent) if window.bucket > since or at == len(self._recent) - 1
        )

    def points(self) -> list[Point]:
        """Finished seconds, for charts. At most 300: in a long run, each covers several seconds."""
        return [_point(packed) for packed in self.packed_points()]

    def packed_points(self) -> list[msgspec.Raw]:
        """The same in MessagePack, as they are kept, for storing."""
        return [*(msgspec.Raw(_encode(point)) for point in self._earlier), *(one.point for one in self._stretches)]

    def summary(self, *, points: bool = True, **rest: Any) -> Summary:
        """The summary, with or without its points. `rest` has the fields that do not follow from the windows.

        Rates are per second of `load_s`, if it is passed; else of `elapsed_s`; else of the time that the windows cover.
        """
        self._close()
        total = self._total
        elapsed_s = rest.pop("elapsed_s", None) or max(0, total.end - total.first) * WINDOW_MS / 1000
        load_s = rest.pop("load_s", None) or elapsed_s
        order = _order(self._header)
        sums = self._sums()
        checks = sorted(total.checks.values(), key=lambda check: order(check.workflow, check.step))
        steps = [step_summary(step, load_s) for step in sums]
        service = merged(times.sketch() for step in sums for times in (step.ok, step.failed))
        response = merged(step.response.sketch() for step in sums)
        requests = sum(step.requests for step in steps)
        failed = sum(step.failed for step in steps)
        known: dict[str, Any] = {
            "header": self._header,
            "elapsed_s": elapsed_s,
            "load_s": load_s,
            "requests": requests,
            "failed": failed,
            "raised": sum(step.raised for step in steps),
            "raised_after": sum(step.raised_after for step in steps),
            "error_rate": error_rate(sums),
            "rate": per(requests, load_s),
            **total.counts,
            "users": self._users,
            "service": latency_of(service),
            "ok": latency_of(merged(step.ok.sketch() for step in sums)) if failed else None,
            "response": latency_of(response),
            "sent": sum(step.sent for step in steps),
            "received": sum(step.received for step in steps),
            "steps": steps,
            "by_tag": tag_summaries(self._header, total.steps, load_s, most=KINDS),
            "checks": [
                CheckSummary(**{**msgspec.structs.asdict(check), "reasons": by_number(check.reasons)})
                for check in checks
            ],
            "metrics": [metric_summary(total.metrics[key], load_s) for key in sorted(total.metrics, key=repr)],
            "errors": by_number(_added(step.errors for step in steps)),
            "examples": dict(sorted(total.examples.items())),
            "points": self.points() if points else [],
            "distribution": buckets_of(service),
            "response_distribution": buckets_of(response),
        }
        return Summary(**{**known, **rest})

    def steps(self, workflow: str, load_s: float) -> list[StepSummary]:
        """The measured steps of a workflow so far."""
        self._close()
        return [step_summary(step, load_s) for step in self._sums() if step.workflow == workflow]

    def _sums(self) -> list[StepSum]:
        order = _order(self._header)
        return sorted(self._total.steps.values(), key=lambda step: order(step.workflow, step.step))

    def _close(self) -> None:
        """Close a second."""
        if self._second.end < 0:
            return
        window = self._second.window()
        self._second = WindowSum()
        self._total.add(window)
        if (window.bucket - self._origin) * WINDOW_MS / 1000 < self._since_s - _GRAIN_S:
            self._earlier += self._unseen(window)
            return
        added = _Stretch.of(window, self._number - self._number % self._span, self._origin)
        if self._stretches and self._stretches[-1].number == added.number:
            self._stretches[-1] = self._stretches[-1].joined(added)
        else:
            self._stretches.append(added)
        if len(self._stretches) > STRETCHES:
            self._span *= 2
            self._stretches = _coarser(self._stretches, self._span)

    def _unseen(self, window: Window) -> list[Point]:
        """A point for the end of a sum whose beginning has points. Its percentiles are unknown."""
        at_s = (window.bucket - self._origin) * WINDOW_MS / 1000
        width_s = round(at_s + window.width * WINDOW_MS / 1000 - self._since_s, 3)
        if width_s <= 0:
            return []
        seen = [point for point in self._earlier if point.at_s >= at_s - _GRAIN_S]
        requests = sum(times.count for step in window.steps for times in (step.ok, step.failed) if times is not None)
        failed = sum(step.failed.count for step in window.steps if step.failed is not None)
        point = Point(
            at_s=self._since_s,
            width_s=width_s,
            users=window.users,
            rate=max(0.0, per(requests - sum(one.rate * one.width_s for one in seen), width_s)),
            failed=max(0.0, per(failed - sum(one.failed * one.width_s for one in seen), width_s)),
            dropped=max(0.0, per(window.dropped - sum(one.dropped * one.width_s for one in seen), width_s)),
        )
        self._since_s = round(self._since_s + width_s, 3)
        return [point]


#: percentiles of each step in a point
_OF_STEP = (0.5, 0.95, 0.99)

_encode = msgspec.msgpack.Encoder().encode
_sketch = msgspec.msgpack.Decoder(Sketch).decode
_point = msgspec.msgpack.Decoder(Point).decode


def _thinned(points: list[Point]) -> list[Point]:
    """Half as many points. Percentiles do not add up, so joined points have none."""
    pairs = zip(points[::2], points[1::2], strict=False)
    joined = [
        Point(
            at_s=first.at_s,
            width_s=round(second.at_s + second.width_s - first.at_s, 3),
            users=second.users,
            rate=(first.rate * first.width_s + second.rate * second.width_s) / (first.width_s + second.width_s),
            failed=(first.failed * first.width_s + second.failed * second.width_s) / (first.width_s + second.width_s),
            dropped=(first.dropped * first.width_s + second.dropped * second.width_s)
            / (first.width_s + second.width_s),
        )
        for first, second in pairs
    ]
    return [*joined, *points[2 * len(joined) :]]


def _pack(sketch: Sketch) -> bytes:
    """Delta-encoded: a distance between buckets is one byte, a bucket number five."""
    return _encode(msgspec.structs.replace(sketch, at=[sketch.at[0], *map(sub, sketch.at[1:], sketch.at)]))


def _unpack(packed: bytes) -> Sketch:
    sketch = _sketch(packed)
    return msgspec.structs.replace(sketch, at=list(accumulate(sketch.at)))


class _Stretch:
    """Some seconds of a run, kept packed: a long run has hundreds, and packed they take half the memory (measured:
    2.5 KB instead of 5.8 for three steps)."""

    __slots__ = ("at_s", "dropped", "failed", "number", "point", "responses", "steps", "users", "width_s")

    def __init__(
        self,
        *,
        number: int,
        at_s: float,
        width_s: float,
        users: int,
        failed: int,
        dropped: int,
        steps: dict[str, Sketch],
        responses: dict[str, Sketch],
    ) -> None:
        """`steps`: service times, by step. `responses`: response times of open models, by step."""
        self.number = number
        self.at_s = at_s
        self.width_s = width_s
        self.users = users
        self.failed = failed
        self.dropped = dropped
        self.steps = {name: _pack(sketch) for name, sketch in steps.items()}
        self.responses = {name: _pack(sketch) for name, sketch in responses.items()}
        self.point = msgspec.Raw(_encode(self._summed(steps, responses)))

    @classmethod
    def of(cls, window: Window, number: int, origin: int) -> _Stretch:
        steps, responses = {}, {}
        for step in window.steps:
            name = f"{step.workflow}.{step.step}"
            if (both := merged((step.ok, step.failed))) is not None:
                steps[name] = both
            if step.response is not None:
                responses[name] = step.response
        return cls(
            number=number,
            at_s=(window.bucket - origin) * WINDOW_MS / 1000,
            width_s=window.width * WINDOW_MS / 1000,
            users=window.users,
            failed=sum(step.failed.count for step in window.steps if step.failed is not None),
            dropped=window.dropped,
            steps=steps,
            responses=responses,
        )

    def joined(self, later: _Stretch) -> _Stretch:
        return _Stretch(
            number=self.number,
            at_s=self.at_s,
            width_s=round(later.at_s + later.width_s - self.at_s, 3),
            users=later.users,
            failed=self.failed + later.failed,
            dropped=self.dropped + later.dropped,
            steps=_joined(self.steps, later.steps),
            responses=_joined(self.responses, later.responses),
        )

    def _summed(self, steps: dict[str, Sketch], responses: dict[str, Sketch]) -> Point:
        by_step: dict[str, list[float | None]] = {}
        for name, sketch in steps.items():
            by_step[name] = [per(sketch.count, self.width_s), *percentiles_of(sketch, _OF_STEP)]
        for name, sketch in responses.items():
            by_step.setdefault(name, [0.0, None, None, None]).extend(percentiles_of(sketch, _OF_STEP))
        whole = merged(steps.values())
        response = merged(responses.values())
        return Point(
            at_s=self.at_s,
            width_s=self.width_s,
            users=self.users,
            rate=per(0 if whole is None else whole.count, self.width_s),
            failed=per(self.failed, self.width_s),
            dropped=per(self.dropped, self.width_s),
            **_percentiles(whole),
            response=None if response is None else Percentiles(**_percentiles(response)),
            by_step=by_step,
        )


def _percentiles(sketch: Sketch | None) -> dict[str, Any]:
    """The fields of `Percentiles`, which a `Point` has as well."""
    values = percentiles_of(sketch, (0.5, 0.9, 0.95, 0.99, 1.0))
    return dict(zip(Percentiles.__struct_fields__, values, strict=True))


def _joined(earlier: dict[str, bytes], later: dict[str, bytes]) -> dict[str, Sketch]:
    """The sum of both, by step."""
    sketches = {name: _unpack(packed) for name, packed in earlier.items()}
    for name, packed in later.items():
        sketch = _unpack(packed)
        sketches[name] = (merged((sketches[name], sketch)) or sketch) if name in sketches else sketch
    return sketches


def _coarser(stretches: list[_Stretch], span: int) -> list[_Stretch]:
    joined: list[_Stretch] = []
    for stretch in stretches:
        stretch.number -= stretch.number % span
        if joined and joined[-1].number == stretch.number:
            joined[-1] = joined[-1].joined(stretch)
        else:
            joined.append(stretch)
    return joined


def _added(several: Iterable[dict[str, int]]) -> dict[str, int]:
    added: dict[str, int] = {}
    for counts in several:
        for kind, n in counts.items():
            added[kind] = added.get(kind, 0) + n
    return added


def _order(header: Header) -> Any:
    """A sort key: steps in the order of the header; unknown ones last, by name."""
    places: dict[tuple[str, str], int] = {}
    for workflow in header.workflows:
        for step in workflow.get("steps", ()):
            places[str(workflow.get("name")), str(step.get("name"))] = len(places)
    return lambda workflow, step: (places.get((workflow, step), len(places)), workflow, step)


def to_json(summary: Summary) -> bytes:
    """A summary as JSON."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=1)


def from_json(text: bytes | str) -> Summary:
    """Read a summary that `to_json` wrote."""
    try:
        return msgspec.json.decode(text, type=Summary)
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            "summary", f"this is not the summary of a load test ({error}); pass a file that --json wrote"
        ) from None
