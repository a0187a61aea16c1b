"""The measures that thresholds compare: their names, and how they are read from windows."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from .histogram import Histogram
from .model import CheckStats, Sketch, StepStats, Window
from .shown import digits, share_text, size_text, time_text
from .tags import Steps, Tags, has

Reading: TypeAlias = Literal["stat", "count", "share", "per_s", "last"]

_TIMES = {"us": (1, 1_000_000), "µs": (1, 1_000_000), "ms": (1, 1000), "s": (1, 1), "m": (60, 1), "h": (3600, 1)}
_SIZES = {
    "b": (1, 1), "kb": (1000, 1), "mb": (10**6, 1), "gb": (10**9, 1),
    "kib": (1024, 1), "mib": (1024**2, 1), "gib": (1024**3, 1),
}  # fmt: skip
#: unit -> multiplier and divisor; a divisor because 57 * 0.01 is not 0.57
UNITS: dict[str, tuple[int, int]] = {
    "": (1, 1),
    "%": (1, 100),
    "/s": (1, 1),
    **_TIMES,
    **_SIZES,
    **{f"{size}/s": scale for size, scale in _SIZES.items()},
}

_TIMED = dict.fromkeys(_TIMES, "stat")
_COUNTED = {"": "count", "/s": "per_s"}
_SIZED = {**_COUNTED, **dict.fromkeys(_SIZES, "count"), **{f"{size}/s": "per_s" for size in _SIZES}}

STATS = ("mean", "min", "max", "stdev", "median")
STAT = re.compile(r"p\d+(?:\.\d+)?\Z")
STATUS = re.compile(r"rc[1-9][\dx?]{2}\Z", re.IGNORECASE)


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What a threshold compares."""

    source: str
    units: dict[str, str]
    """unit of the limit -> how the value is read"""
    example: str
    """an example of a limit"""
    by: Literal["step", "check", "tag", "run"] = "step"
    """what `of` can name: steps and checks by name or tags, metrics by tags; nothing for measures of the whole run"""

    def reading(self, unit: str) -> Reading | None:
        return self.units.get(unit)  # type: ignore[return-value]


#: by their names in thresholds
MEASURES: dict[str, Measure] = {
    "service": Measure(source="service", units=_TIMED, example="200ms"),
    "ok": Measure(source="ok", units=_TIMED, example="200ms"),
    "response": Measure(source="response", units=_TIMED, example="200ms"),
    "rate": Measure(source="calls", units={"": "per_s", "/s": "per_s"}, example="1000/s"),
    "requests": Measure(source="calls", units=_COUNTED, example="10000"),
    "failures": Measure(source="failures", units={**_COUNTED, "%": "share"}, example="10"),
    "errors": Measure(source="errors", units={**_COUNTED, "%": "share"}, example="10"),
    "error rate": Measure(source="errors", units={"%": "share"}, example="1%"),
    "status": Measure(source="status", units={**_COUNTED, "%": "share"}, example="5%"),
    "checks": Measure(source="checks", units={"%": "share"}, example="99%", by="check"),
    "failed checks": Measure(source="failed checks", units={**_COUNTED, "%": "share"}, example="10", by="check"),
    "skipped": Measure(source="skipped", units=_COUNTED, example="10"),
    "bytes": Measure(source="bytes", units=_SIZED, example="10MB"),
    "sent": Measure(source="sent", units=_SIZED, example="10MB"),
    "received": Measure(source="received", units=_SIZED, example="10MB"),
    "iterations": Measure(source="iterations", units=_COUNTED, example="1000", by="run"),
    "dropped": Measure(source="dropped", units={**_COUNTED, "%": "share"}, example="10", by="run"),
    "aborted": Measure(source="aborted", units=_COUNTED, example="10", by="run"),
    "users": Measure(source="users", units={"": "last"}, example="100", by="run"),
    "counter": Measure(source="counter", units=_SIZED, example="100", by="tag"),
    "gauge": Measure(source="gauge", units=dict.fromkeys(("", *_TIMES, *_SIZES), "last"), example="10", by="tag"),
    "custom rate": Measure(source="custom rate", units={"%": "share"}, example="90%", by="tag"),
    "trend": Measure(source="trend", units=dict.fromkeys(("", *_TIMES, *_SIZES), "stat"), example="10", by="tag"),
}

Of: TypeAlias = str | Steps | Tags | None
"""the selected part of a window: a step by its name, some steps, metrics with these tags, or everything"""


class Piece:
    """The values of one measure in a stretch of time. Pieces can be added."""

    __slots__ = ("amount", "amounts", "base", "last", "twice", "values")

    def __init__(self) -> None:
        self.values = Histogram()
        self.amount = 0.0
        self.base = 0.0
        """the whole of which `amount` is a share"""
        self.twice = 0.0
        """of `amount`: counted twice, and subtracted for a share"""
        self.last: float | None = None
        self.amounts: list[tuple[int, float]] = []
        """for each window: the bucket after it, and its part of `amount`. Not merged"""

    def merge(self, later: Piece) -> None:
        self.values.merge(later.values)
        self.amount += later.amount
        self.base += later.base
        self.twice += later.twice
        self.last = self.last if later.last is None else later.last

    def read(self, reading: Reading, stat: str, seconds: float) -> float | None:
        """The value; None if nothing was measured."""
        if reading == "stat":
            return _stat(self.values, stat)
        if reading == "share":
            return (self.amount - self.twice) / self.base if self.base else None
        if reading == "per_s":
            return self.amount / seconds if seconds else None
        return self.last if reading == "last" else self.amount


def _stat(values: Histogram, stat: str) -> float | None:
    if not values.count:
        return None
    match stat:
        case "mean":
            return values.mean
        case "min":
            return values.low
        case "max":
            return values.high
        case "stdev":
            return values.stdev
    return values.percentile(float(stat[1:]) / 100)


def collect(piece: Piece, source: str, name: str, of: Of, window: Window) -> None:
    """Add the values of a window to a piece. `name`: of a metric, or the pattern of a status."""
    if source in ("counter", "gauge", "custom rate", "trend"):
        _collect_metric(piece, name, source, window, of if isinstance(of, tuple) else ())
    elif source in ("checks", "failed checks"):
        for check in window.checks:
            if _is(check, of):
                piece.amount += check.passed if source == "checks" else check.failed
                piece.base += check.passed + check.failed
    elif source in ("iterations", "dropped", "aborted", "users"):
        _collect_run(piece, source, window)
    else:
        for step in window.steps:
            if _is(step, of):
                _collect_step(piece, source, name, step)
        if source in ("service", "ok", "calls") and isinstance(of, str):
            # a step that returns a metric can be named like any other
            _collect_metric(piece, of.rpartition(".")[2], "counter" if source == "calls" else "trend", window)


def _collect_step(piece: Piece, source: str, pattern: str, step: StepStats) -> None:
    failed = step.failed.count if step.failed is not None else 0
    calls = failed + (step.ok.count if step.ok is not None else 0)
    match source:
        case "service" | "ok" | "response":
            for sketch in _times_of(step, source):
                if sketch is not None:
                    piece.values.merge(sketch)
        case "calls":
            piece.amount += calls
        case "failures":
            piece.amount += failed
        case "errors":
            errors = sum(step.errors.values())
            piece.amount += errors
            # like `error_rate` of the sums: an exception without a call counts as an attempt
            piece.base += max(0, errors - failed) - step.raised_after
            piece.twice += step.raised_after_failed
        case "status":
            piece.amount += sum(n for status, n in step.statuses.items() if _matches(status, pattern))
        case "skipped":
            piece.amount += step.skipped
        case _:
            piece.amount += (source != "received") * step.sent + (source != "sent") * step.received
    piece.base += calls


def _times_of(step: StepStats, source: str) -> tuple[Sketch | None, ...]:
    if source == "response":
        return (step.response,)
    return (step.ok,) if source == "ok" else (step.ok, step.failed)


def _collect_metric(piece: Piece, name: str, source: str, window: Window, tags: Tags = ()) -> None:
    kind = "rate" if source == "custom rate" else source
    for metric in window.metrics:
        if metric.name != name or metric.type != kind or not has(metric.tags, tags):
            continue
        piece.amount += metric.total
        piece.base += metric.count
        if metric.count:
            piece.last = metric.total
        if metric.values is not None:
            piece.values.merge(metric.values)


def _collect_run(piece: Piece, source: str, window: Window) -> None:
    match source:
        case "iterations":
            piece.amount += window.iterations
        case "dropped":
            piece.amount += window.dropped
            piece.base += window.arrivals
        case "aborted":
            piece.amount += window.aborted
        case _ if not window.draining:
            piece.last = float(window.users)


def _is(stats: StepStats | CheckStats, of: Of) -> bool:
    if isinstance(of, frozenset):
        return (stats.workflow, stats.step) in of
    return of in (None, stats.step, f"{stats.workflow}.{stats.step}")


def _matches(status: str, pattern: str) -> bool:
    return len(status) == len(pattern) and all(p in (s, "x") for s, p in zip(status, pattern, strict=True))


def value_text(value: float, source: str, reading: Reading, unit: str) -> str:
    """A value as text, in the unit of its limit or a similar one."""
    if reading == "share":
        return share_text(value)
    if unit in _TIMES or source in ("service", "ok", "response"):
        return time_text(value)
    sized = unit.removesuffix("/s") in _SIZES or source in ("bytes", "sent", "received")
    return (size_text(value) if sized else digits(value)) + ("/s" if reading == "per_s" else "")
