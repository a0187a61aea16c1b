"""The times of each step for other tools: a log for HdrHistogram's tools, and metrics as OTLP in JSON.

Both need the histograms, which a summary does not have: they come from the windows of a run, or from its recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import InvalidInput
from ..stats.export import hdr_log, otlp_point
from ..stats.histogram import Histogram
from ..stats.model import Sketch, StepStats, Summary

#: AGGREGATION_TEMPORALITY_CUMULATIVE: from the start of the run on
_CUMULATIVE = 2


def hdr_text(summary: Summary, steps: Sequence[StepStats]) -> str:
    """A log with one interval per step, which is the whole run. The tag names the step: `Shop.browse` for the service
    time of all calls, `Shop.browse:ok` for the successful ones if others failed, `Shop.browse:response`."""
    intervals = []
    for one in steps:
        kinds = {"": (one.ok, one.failed), ":ok": (one.ok,) if one.failed else (), ":response": (one.response,)}
        for kind, sketches in kinds.items():
            if (values := _added(*sketches)).count:
                intervals.append((0.0, summary.elapsed_s, f"{one.workflow}.{one.step}{kind}", values))
    return hdr_log(summary.header.started_ms, intervals)


def otlp_json(summary: Summary, steps: Sequence[StepStats]) -> bytes:
    """An `ExportMetricsServiceRequest`, to be posted to /v1/metrics of a collector."""
    header = summary.header
    resource = {"service.name": header.name, "service.instance.id": header.run, **header.tags}
    service, response = [], []
    for one in steps:
        names = {"workflow": one.workflow, "step": one.step}
        for outcome, sketch in (("ok", one.ok), ("failed", one.failed)):
            service += _point(summary, {**names, "outcome": outcome}, sketch)
        response += _point(summary, names, one.response)
    metrics = [
        _metric("mainstay.load.service_time", "From the call to its response.", service),
        _metric("mainstay.load.response_time", "From the moment the call was due to its response.", response),
    ]
    scope = {"name": "mainstay.load", "version": header.version}
    resource_metrics = {
        "resource": {"attributes": _attributes(resource)},
        "scopeMetrics": [{"scope": scope, "metrics": [one for one in metrics if one is not None]}],
    }
    return msgspec.json.format(msgspec.json.encode({"resourceMetrics": [resource_metrics]}), indent=1)


def needed_steps(steps: Sequence[StepStats] | None, *, field: str) -> Sequence[StepStats]:
    """The steps; an error if their histograms are not known."""
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
    histogram = {"aggregationTemporality": _CUMULATIVE, "dataPoints": points}
    return {"name": name, "description": about, "unit": "s", "exponentialHistogram": histogram}


def _point(summary: Summary, attributes: dict[str, str], sketch: Sketch | None) -> list[dict[str, Any]]:
    if sketch is None:
        return []
    point = otlp_point(Histogram([sketch]))
    started_ns = summary.header.started_ms * 1_000_000
    # OTLP writes 64-bit numbers as text in JSON
    return [
        {
            "attributes": _attributes(attributes),
            "startTimeUnixNano": str(started_ns),
            "timeUnixNano": str(started_ns + round(summary.elapsed_s * 1e9)),
            "count": str(point["count"]),
            "sum": point["sum"],
            "scale": point["scale"],
            "zeroCount": str(point["zero_count"]),
            "positive": _buckets(point["positive"]),
            "negative": _buckets(point["negative"]),
            "min": point["min"],
            "max": point["max"],
        }
    ]


def _buckets(side: dict[str, Any]) -> dict[str, Any]:
    return {"offset": side["offset"], "bucketCounts": [str(n) for n in side["bucket_counts"]]}


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
