"""The times of each step for other tools: a log that HdrHistogram's tools read, and metrics as OTLP in JSON.

Both are made from the histograms themselves, which a summary does not have: from the windows of a run, or from what it
recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import InvalidInput
from ..stats.export import hdr_log, otlp_point
from ..stats.histogram import Histogram
from ..stats.model import Sketch, StepStats, Summary, Window
from ..stats.sums import StepSum

#: AGGREGATION_TEMPORALITY_CUMULATIVE: from the start of the run on
_CUMULATIVE = 2


class StepTotals:
    """The steps of a run, added up window by window. Does not grow with its length."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str], StepSum] = {}

    def add(self, window: Window) -> None:
        for step in window.steps:
            key = (step.workflow, step.step)
            if key not in self._steps:
                self._steps[key] = StepSum(*key)
            # of what it says of errors, nothing is told here
            self._steps[key].add(step, most=1)

    def steps(self) -> list[StepStats]:
        return [self._steps[key].stats() for key in sorted(self._steps)]


def hdr_text(summary: Summary, steps: Sequence[StepStats]) -> str:
    """A log with an interval for each step, which is the whole run. Its tag is the step: `Shop.browse` for the service
    time of all calls, `Shop.browse:ok` for the successful ones where others failed, `Shop.browse:response`."""
    intervals = []
    for one in steps:
        kinds = {"": (one.ok, one.failed), ":ok": (one.ok,) if one.failed else (), ":response": (one.response,)}
        for kind, sketches in kinds.items():
            if (found := _added(*sketches)).count:
                intervals.append((0.0, summary.elapsed_s, f"{one.workflow}.{one.step}{kind}", found))
    return hdr_log(summary.header.started_ms, intervals)


def otlp_json(summary: Summary, steps: Sequence[StepStats]) -> bytes:
    """An `ExportMetricsServiceRequest`, as it is posted to /v1/metrics of a collector."""
    header = summary.header
    resource = {"service.name": header.name, "service.instance.id": header.run, **header.tags}
    service, response = [], []
    for one in steps:
        named = {"workflow": one.workflow, "step": one.step}
        for outcome, sketch in (("ok", one.ok), ("failed", one.failed)):
            service += _point(summary, {**named, "outcome": outcome}, sketch)
        response += _point(summary, named, one.response)
    metrics = [
        _metric("mainstay.load.service_time", "From the call to its answer.", service),
        _metric("mainstay.load.response_time", "From the moment the call was due to its answer.", response),
    ]
    scope = {"name": "mainstay.load", "version": header.version}
    told = {
        "resource": {"attributes": _attributes(resource)},
        "scopeMetrics": [{"scope": scope, "metrics": [one for one in metrics if one is not None]}],
    }
    return msgspec.json.format(msgspec.json.encode({"resourceMetrics": [told]}), indent=1)


def needed_steps(steps: Sequence[StepStats] | None, *, field: str) -> Sequence[StepStats]:
    """The steps, if their histograms are known."""
    if steps is None:
        raise InvalidInput(
            field, "a summary has no histograms of its steps; give the recorded stream (.ndjson) of the run"
        )
    return steps


def _added(*sketches: Sketch | None) -> Histogram:
    return Histogram(one for one in sketches if one is not None)


def _metric(name: str, about: str, points: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not points:
        return None
    told = {"aggregationTemporality": _CUMULATIVE, "dataPoints": points}
    return {"name": name, "description": about, "unit": "s", "exponentialHistogram": told}


def _point(summary: Summary, attributes: dict[str, str], sketch: Sketch | None) -> list[dict[str, Any]]:
    if sketch is None:
        return []
    found = otlp_point(Histogram([sketch]))
    started_ns = summary.header.started_ms * 1_000_000
    # JSON has no 64 bits for numbers, so OTLP writes them as text
    return [
        {
            "attributes": _attributes(attributes),
            "startTimeUnixNano": str(started_ns),
            "timeUnixNano": str(started_ns + round(summary.elapsed_s * 1e9)),
            "count": str(found["count"]),
            "sum": found["sum"],
            "scale": found["scale"],
            "zeroCount": str(found["zero_count"]),
            "positive": _buckets(found["positive"]),
            "negative": _buckets(found["negative"]),
            "min": found["min"],
            "max": found["max"],
        }
    ]


def _buckets(found: dict[str, Any]) -> dict[str, Any]:
    return {"offset": found["offset"], "bucketCounts": [str(n) for n in found["bucket_counts"]]}


def _attributes(named: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]
