"""Records the calls of virtual users, and makes a window of them ten times a second.

Only `note` runs for each call, so it does almost nothing: raw times are appended to a buffer. Differences, sketches and
sums are computed from the whole buffer when the window closes.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import InvalidInput
from ..hooks import Check
from ..results import Result
from ..stats.histogram import sketch_of
from ..stats.model import CheckStats, MetricStats, MetricType, Sketch, StepStats
from .guard import plain

#: numbers of each call: started, written, first, ended, spent on its connection, sent, received
_WIDTH = 7
#: packing a row takes a quarter of the time of extending an array by a tuple (measured: 310 and 1300 ns)
_row = struct.Struct(f"{_WIDTH}d").pack
#: different reasons of one check that are kept
_MOST_REASONS = 20
_LONGEST_REASON = 200
#: different statuses, or kinds of errors, of one step in one window
_MOST_NAMES = 100
_RETURN = "write `return`, or annotate it with `| None`"
#: different metrics with their tags: a tag with unlimited values would fill the memory
_MOST_METRICS = 1000


class StepRecorder:
    """One measured step in one process."""

    __slots__ = (
        "_after", "_after_failed", "_errors", "_examples", "_exemplified", "_extend", "_failed", "_opened", "_optional",
        "_rows", "_statuses", "late", "open_model", "skipped", "step", "workflow",
    )  # fmt: skip

    def __init__(self, workflow: str, step: str, *, open_model: bool, optional: bool = True) -> None:
        self.workflow = workflow
        self.step = step
        self._optional = optional
        self.open_model = open_model
        self._rows = bytearray()
        self._extend = self._rows.extend
        self.late = array("d")
        """open model: seconds from the intended start"""
        self._statuses: defaultdict[Any, int] = defaultdict(int)
        self._opened: list[tuple[float, float, float]] = []
        self._failed = array("d")
        self._errors: defaultdict[str, int] = defaultdict(int)
        self._examples: dict[str, str] = {}
        self._exemplified: set[str] = set()
        """kinds of errors with a reported example: one is enough"""
        self._after = 0
        self._after_failed = 0
        self.skipped = 0

    def note(self, result: Result | None, delay: float) -> None:
        """Record a response. `delay`: how late its iteration began."""
        if not isinstance(result, Result):
            if result is None:
                if self._optional:
                    return
                raise InvalidInput(self.step, f"returned nothing, so nothing is measured; {_RETURN}")
            raise InvalidInput(
                self.step, f"returned {type(result).__name__}, which is not a response; see its annotation"
            )
        self._statuses[result.status] += 1
        try:
            if result.failure or result.opening is not None:
                self._note_other(result)
            else:
                self._extend(
                    _row(result.started, result.written, result.first, result.ended, 0.0, result.sent, result.received)
                )
        except struct.error as error:
            raise TypeError(f"{self.step} returned a result with a time that is not a number ({error})") from None
        if self.open_model:
            self.late.append(result.ended - result.started + delay)

    def note_each(self, result: Any, delay: float) -> None:
        """Record the responses of a step that returns several."""
        if isinstance(result, dict):
            result = tuple(result.values())
        if not isinstance(result, (list, tuple)):
            self.note(result, delay)
            return
        for one in result:
            if one is not None:
                self.note(one, delay)

    def _note_other(self, result: Result) -> None:
        opening = result.opening
        spent = 0.0
        if opening is not None:
            # prepared hosts are resolved; resolving another one is a wait like others
            self._opened.append((opening.blocked + opening.dns, opening.connect, opening.tls))
            spent = sum(opening)
        if result.failure:
            self._errors[result.failure] += 1
            self._failed.append(result.ended - result.started)
            # the phases of a failed call mean little, but its bytes count
            self._extend(_row(math.nan, math.nan, math.nan, math.nan, math.nan, result.sent, result.received))
        else:
            self._extend(
                _row(result.started, result.written, result.first, result.ended, spent, result.sent, result.received)
            )

    def lacks_example(self, kind: str) -> bool:
        return kind not in self._exemplified and len(self._exemplified) < _MOST_NAMES

    def example(self, kind: str, text: str) -> None:
        """Keep the text of an error as an example."""
        if self.lacks_example(kind):
            self._exemplified.add(kind)
            self._examples[kind] = text

    def raised(self, kind: str, took: float, delay: float, *, sent: int = 0, received: int = 0) -> None:
        """Record a call without a response, after these bytes."""
        self._errors[kind] += 1
        self._failed.append(took)
        if sent or received:
            self._extend(_row(math.nan, math.nan, math.nan, math.nan, math.nan, sent, received))
        if self.open_model:
            self.late.append(took + delay)

    def broke(self, kind: str, answers: Sequence[Result] = (), delay: float = 0.0) -> None:
        """The code of a step raised. `answers`: the responses that it had got, which count as requests."""
        self._errors[kind] += 1
        for answer in answers:
            self.note(answer, delay)
        self._after += bool(answers)
        self._after_failed += any(answer.failure for answer in answers)

    def take(self) -> StepStats | None:
        """The statistics since the last call."""
        if not (self._rows or self._failed or self.skipped or self._errors):
            return None
        rows = np.frombuffer(self._rows).reshape(-1, _WIDTH)
        sent, received = (int(part) for part in rows[:, 5:].sum(axis=0)) if len(rows) else (0, 0)
        times = rows[~np.isnan(rows[:, 0])] if self._failed else rows
        phases: dict[str, Sketch | None] = {}
        if len(times):
            # a server may answer before it has read the whole request: no phase is negative
            phases = {
                "send": sketch_of(np.maximum(times[:, 1] - times[:, 0] - times[:, 4], 0.0)),
                "wait": sketch_of(np.maximum(times[:, 2] - times[:, 1], 0.0)),
                "receive": sketch_of(np.maximum(times[:, 3] - times[:, 2], 0.0)),
            }
        if self._opened:
            opened = np.array(self._opened)
            for at, name in enumerate(("blocked", "connect", "tls")):
                some = opened[:, at]
                # a phase that did not happen is left out, not counted as zero
                phases[name] = sketch_of(some[some > 0])
        stats = StepStats(
            workflow=self.workflow,
            step=self.step,
            ok=sketch_of(times[:, 3] - times[:, 0]) if len(times) else None,
            failed=sketch_of(np.frombuffer(self._failed)) if self._failed else None,
            response=sketch_of(np.frombuffer(self.late)) if self.late else None,
            phases={name: sketch for name, sketch in phases.items() if sketch is not None},
            statuses=_named(self._statuses),
            errors=_named(self._errors),
            examples=self._examples,
            raised_after=self._after,
            raised_after_failed=self._after_failed,
            skipped=self.skipped,
            sent=sent,
            received=received,
        )
        self._rows = bytearray()
        self._extend = self._rows.extend
        self._failed, self.late, self._opened = array("d"), array("d"), []
        self._statuses.clear()
        self._errors.clear()
        self._examples = {}
        self._after = self._after_failed = self.skipped = 0
        return stats


def _named(counts: Mapping[Any, int]) -> dict[str, int]:
    """Counts by name as text, within a limit."""
    named: dict[str, int] = {}
    for name, n in counts.items():
        text = plain(name)
        if text not in named and len(named) >= _MOST_NAMES:
            text = "other"
        named[text] = named.get(text, 0) + n
    return named


class CheckRecorder:
    """One check in one process."""

    __slots__ = ("_failed", "_optional", "_passed", "_reasons", "skipped", "step", "workflow")

    def __init__(self, workflow: str, step: str, *, optional: bool = True) -> None:
        self._optional = optional
        self.workflow = workflow
        self.step = step
        self.skipped = 0
        self._passed = 0
        self._failed = 0
        self._reasons: dict[str, int] = {}

    def note(self, result: Any, _: float = 0.0) -> None:
        """Record the result of a check: a Check, several, an exception that it returned, or None."""
        if result is None:
            self._count(self._optional, f"the step returned nothing; {_RETURN}")
        elif isinstance(result, Check):
            self._count(result.holds, result.says or self.step)
        elif isinstance(result, BaseException):
            self.failed(f"{type(result).__name__}: {result}")
        elif isinstance(result, (list, tuple)):
            for one in result:
                self.note(one)
        else:
            self.failed(f"the step returned {type(result).__name__}, which is not a Check")

    def failed(self, why: str) -> None:
        self._count(False, why)

    def _count(self, holds: bool, why: str) -> None:
        if holds:
            self._passed += 1
            return
        self._failed += 1
        why = plain(why)[:_LONGEST_REASON]
        if why not in self._reasons and len(self._reasons) >= _MOST_REASONS:
            why = "other"
        self._reasons[why] = self._reasons.get(why, 0) + 1

    def take(self) -> CheckStats | None:
        if not (self._passed or self._failed or self.skipped):
            return None
        stats = CheckStats(
            workflow=self.workflow,
            step=self.step,
            passed=self._passed,
            failed=self._failed,
            skipped=self.skipped,
            reasons=self._reasons,
        )
        self._passed = self._failed = self.skipped = 0
        self._reasons = {}
        return stats


class MetricRecorder:
    """The custom metrics of one process."""

    def __init__(self) -> None:
        self._types: dict[str, MetricType] = {}
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}
        self._seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    def add(self, name: str, kind: MetricType, value: float | bool, tags: Mapping[str, str] | None = None) -> None:
        """Record a value; raises `InvalidInput` if it is not a finite number, or the metric has another type."""
        if not isinstance(name, str):
            raise InvalidInput("metric", f"{plain(name)} is not the name of a metric; use text")
        known = self._types.setdefault(name, kind)
        if known != kind:
            raise InvalidInput(name, f"is a {known} and was used as a {kind}; rename one of them")
        number = float(value)
        if not math.isfinite(number):
            raise InvalidInput(name, f"{value!r} cannot be recorded; it is not a finite number")
        key = (name, tuple(sorted((plain(tag), plain(text)) for tag, text in tags.items())) if tags else ())
        values = self._values.get(key)
        if values is None:
            if key not in self._seen and len(self._seen) >= _MOST_METRICS:
                raise InvalidInput(
                    name,
                    f"there are more than {_MOST_METRICS} combinations of metrics and tags; use tags with few values",
                )
            self._seen.add(key)
            values = self._values[key] = []
        values.append(number)

    def take(self) -> list[MetricStats]:
        stats = []
        for (name, tags), values in self._values.items():
            kind = self._types[name]
            stats.append(
                MetricStats(
                    name=plain(name),
                    type=kind,
                    tags=dict(tags),
                    total=values[-1] if kind == "gauge" else math.fsum(values),
                    count=len(values),
                    low=min(values),
                    high=max(values),
                    values=sketch_of(np.array(values)) if kind == "trend" else None,
                )
            )
        self._values = {}
        return stats
