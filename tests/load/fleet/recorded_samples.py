"""Samples that a process measured, as its windows; and the percentiles of a summary."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.load.engine.recorder import StepRecorder
from mainstay.load.results import Result
from mainstay.load.stats.model import Latency, Summary, Window
from mainstay.load.stats.tally import RunTally
from tests.load.stats.made import FIRST, header

#: what the design promises
ERROR = 0.008
QUANTILES = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9, "min": 0, "max": 100}

#: by tenth of a second: the service times in it
Samples = Sequence[Sequence[float]]


def recorded(samples: Samples) -> list[Window]:
    """The windows of a process that measured these calls."""
    recorder = StepRecorder("Shop", "browse", open_model=False)
    windows = []
    for tenth, times in enumerate(samples):
        for took in times:
            recorder.note(Result(started=0.0, written=0.0, first=took, ended=took, failure=""), 0.0)
        steps = [stats for stats in [recorder.take()] if stats is not None]
        windows.append(Window(bucket=FIRST + tenth, steps=steps))
    return windows


def summary(windows: list[Window]) -> Summary:
    tally = RunTally(header(steps=("browse",)))
    for window in windows:
        tally.add(window)
    return tally.summary()


def percentiles(latency: Latency | None) -> dict[str, float]:
    assert latency is not None
    return {name: getattr(latency, name) for name in QUANTILES}


__all__ = ["ERROR", "QUANTILES", "Samples", "percentiles", "recorded", "summary"]
