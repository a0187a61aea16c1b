"""The times of each step for other tools, as those tools read them."""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from mainstay.errors import InvalidInput
from mainstay.load.report.files import FileOutput, Kind, write_report
from mainstay.load.report.recorded import read_result
from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import Moment, StepStats, Summary, Trust, Window
from mainstay.load.stats.tally import RunTally
from mainstay.load.stream import StreamOutput
from tests.load.report.runs import a_header, a_summary, drawn

HEADER = a_header(thresholds=[], tags={"team": "north"})
PERCENTS = (1, 50, 90, 99, 99.9, 100)
#: what both formats promise, together with our own buckets
ERROR = 0.008


class Known:
    """A run whose every time is known: two seconds, one step that failed now and then, one of an open model."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}
        self.windows = [self._window(at) for at in range(20)]
        tally = RunTally(HEADER)
        for window in self.windows:
            tally.add(window)
        self.summary: Summary = tally.summary()

    def _window(self, at: int) -> Window:
        login, browse = drawn(at, count=200), drawn(at + 99, middle=0.004, count=150)
        late = [one + 0.25 for one in browse]
        parts = {
            "login": login,
            "login:ok": login[20:],
            "login:failed": login[:20],
            "browse": browse,
            "browse:response": late,
        }
        for name, values in parts.items():
            self.times.setdefault(f"Shop.{name}", []).extend(values)
        sketched = {name: sketch_of(array("d", values)) for name, values in parts.items()}
        return Window(
            bucket=17_948_353_921 + at,
            steps=[
                StepStats(workflow="Shop", step="login", ok=sketched["login:ok"], failed=sketched["login:failed"]),
                StepStats(workflow="Shop", step="browse", ok=sketched["browse"], response=sketched["browse:response"]),
            ],
        )

    async def written(self, kind: Kind, path: Path) -> Path:
        """As a run writes it when it is over."""
        output = FileOutput(kind, path)
        await output.start(HEADER)
        for window in self.windows:
            output.add(Moment(window=window, elapsed_s=0.0, phase="running", trust=Trust()))
        await output.stop(self.summary)
        return path

    def truth(self, name: str, percent: float) -> float:
        return float(np.percentile(self.times[name], percent, method="inverted_cdf"))


@pytest.fixture(scope="module")
def known() -> Known:
    return Known()


def hdr_read(path: Path) -> dict[str, Any]:
    """By tag, as the library of HdrHistogram reads it."""
    reader = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000_000, 3))
    found = {}
    while (one := reader.get_next_interval_histogram()) is not None:
        found[one.get_tag()] = one
    reader.close()
    return found


async def test_hdrhistogram_reads_the_percentiles_of_each_step(known: Known, tmp_path: Path) -> None:
    found = hdr_read(await known.written("hdr", tmp_path / "run.hlog"))

    assert set(found) == {"Shop.login", "Shop.login:ok", "Shop.browse", "Shop.browse:response"}
    for name, histogram in found.items():
        assert histogram.get_total_count() == len(known.times[name])
        for percent in PERCENTS:
            read_s = histogram.get_value_at_percentile(percent) / 1e9
            assert read_s == pytest.approx(known.truth(name, percent), rel=ERROR)


def otlp_percentile(point: dict[str, Any], percent: float) -> float:
    """By the rules of the format: bucket `i` of scale `s` ends at 2 ** ((i + 1) / 2 ** s)."""
    base = 2.0 ** (2.0 ** -point["scale"])
    left = max(1, math.ceil(round(int(point["count"]) * percent / 100, 6))) - int(point["zeroCount"])
    for at, n in enumerate(point["positive"]["bucketCounts"], point["positive"]["offset"]):
        left -= int(n)
        if left <= 0:
            return (base**at + base ** (at + 1)) / 2
    raise AssertionError("beyond the last")


async def test_otlp_has_the_percentiles_of_each_step(known: Known, tmp_path: Path) -> None:
    path = await known.written("otlp", tmp_path / "run.json")

    (resource,) = msgspec.json.decode(path.read_bytes())["resourceMetrics"]
    (scope,) = resource["scopeMetrics"]
    named = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
    assert named == {"service.name": "shop", "service.instance.id": HEADER.run, "team": "north"}
    assert [(one["name"], one["unit"]) for one in scope["metrics"]] == [
        ("mainstay.load.service_time", "s"),
        ("mainstay.load.response_time", "s"),
    ]
    service, response = (one["exponentialHistogram"] for one in scope["metrics"])
    assert service["aggregationTemporality"] == response["aggregationTemporality"] == 2
    points = {
        "Shop.browse": service["dataPoints"][0],
        "Shop.login:ok": service["dataPoints"][1],
        "Shop.login:failed": service["dataPoints"][2],
        "Shop.browse:response": response["dataPoints"][0],
    }
    assert [[one["value"]["stringValue"] for one in point["attributes"]] for point in points.values()] == [
        ["Shop", "browse", "ok"],
        ["Shop", "login", "ok"],
        ["Shop", "login", "failed"],
        ["Shop", "browse"],
    ]
    for name, point in points.items():
        times = known.times[name]
        assert (point["count"], point["max"], point["min"]) == (str(len(times)), max(times), min(times))
        assert point["sum"] == pytest.approx(sum(times))
        assert int(point["timeUnixNano"]) - int(point["startTimeUnixNano"]) == 2_000_000_000
        for percent in PERCENTS:
            assert otlp_percentile(point, percent) == pytest.approx(known.truth(name, percent), rel=ERROR)


@pytest.mark.parametrize("kind", ["hdr", "otlp"])
async def test_what_was_recorded_makes_the_same_file_as_the_run_did(known: Known, kind: str, tmp_path: Path) -> None:
    at_once = await known.written(kind, tmp_path / "run.out")
    stream = StreamOutput(tmp_path / "run.ndjson")
    await stream.start(HEADER)
    for window in known.windows:
        stream.add(Moment(window=window, elapsed_s=0.0, phase="running", trust=Trust()))
    await stream.stop(known.summary)

    run = read_result(tmp_path / "run.ndjson")
    (again,) = write_report(kind, tmp_path / "again.out", run.summary, steps=run.steps)

    assert again.read_text().splitlines()[:3] == at_once.read_text().splitlines()[:3]
    assert again.stat().st_size == pytest.approx(at_once.stat().st_size, rel=0.01)


@pytest.mark.parametrize("kind", ["hdr", "otlp"])
def test_a_summary_alone_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=rf"{kind}: a summary has no histograms of its steps; give the recorded"):
        write_report(kind, tmp_path / "run.out", a_summary())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["hdr", "otlp"])
async def test_a_run_that_measured_nothing_is_an_empty_file(kind: Kind, tmp_path: Path) -> None:
    output = FileOutput(kind, tmp_path / "run.out")
    await output.start(HEADER)
    await output.stop(RunTally(HEADER).summary())

    text = (tmp_path / "run.out").read_text()
    assert "metrics" in text if kind == "otlp" else text.splitlines()[-1].startswith('"StartTimestamp"')
