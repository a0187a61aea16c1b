"""From calls whose times are known to the numbers of a summary: over two processes and every window, against numpy.

No clock and no process is in it, so any machine can tell; `tests/load/test_accuracy.py` does it with real generators.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from mainstay.load.engine.recorder import StepRecorder
from mainstay.load.results import Result
from mainstay.load.stats.grammar import parse
from mainstay.load.stats.model import Summary, Window
from mainstay.load.stats.tally import RunTally, merge_windows
from mainstay.load.stats.thresholds import ThresholdJudge
from tests.load.stats.made import FIRST, header

#: a bucket is less than this part of its values wide
ERROR = 0.008
QUANTILES = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9, "min": 0, "max": 100}
SECONDS, A_TENTH = 12, 150
#: the target stands still in this second: what is due in it waits for its end
STILL = 7


class Call(msgspec.Struct):
    """What happened, exactly."""

    tenth: int
    took: float
    waited: float
    failed: bool


def happened(process: int) -> Iterator[Call]:
    """1 % take 1.5 s and fail, the others 20 ms, give or take; another process is twice as slow."""
    rng = np.random.default_rng(process)
    for tenth in range(SECONDS * 10):
        for took, slow in zip(
            rng.lognormal(np.log(0.02 * (1 + process)), 0.3, A_TENTH), rng.random(A_TENTH), strict=True
        ):
            waited = 1.0 - tenth % 10 / 10 if tenth // 10 == STILL else 0.0
            failed = bool(slow < 0.01)
            yield Call(tenth=tenth, took=float(1.5 + took if failed else took), waited=waited, failed=failed)


def windows(process: int, calls: list[Call]) -> list[Window]:
    """As a generator sends them."""
    recorder = StepRecorder("Shop", "browse", open_model=True)
    made = []
    for tenth in range(SECONDS * 10):
        for call in (one for one in calls if one.tenth == tenth):
            # a clock that was started long ago
            started = 86_400.0 * 30 + tenth / 10
            ended = started + call.took
            failure = "slow" if call.failed else ""
            recorder.note(
                Result(started=started, written=started, first=ended, ended=ended, failure=failure), call.waited
            )
        steps = [stats for stats in [recorder.take()] if stats is not None]
        window = Window(bucket=FIRST + tenth, process=process, steps=steps)
        made.append(msgspec.msgpack.decode(msgspec.msgpack.encode(window), type=Window))
    return made


@pytest.fixture(scope="module")
def calls() -> list[list[Call]]:
    return [list(happened(process)) for process in (0, 1)]


@pytest.fixture(scope="module")
def merged(calls: list[list[Call]]) -> list[Window]:
    both = (windows(process, some) for process, some in enumerate(calls))
    return [merge_windows(pair) for pair in zip(*both, strict=True)]


@pytest.fixture(scope="module")
def summary(merged: list[Window]) -> Summary:
    tally = RunTally(header(steps=("browse",)))
    for window in merged:
        tally.add(window)
    return tally.summary()


def truth(times: list[float], percent: float) -> float:
    return float(np.percentile(times, percent, method="inverted_cdf"))


def test_percentiles_of_a_run_are_those_of_its_calls(calls: list[list[Call]], summary: Summary) -> None:
    every = [call for some in calls for call in some]
    found = {
        "service": (summary.service, [call.took for call in every]),
        "ok": (summary.ok, [call.took for call in every if not call.failed]),
        "response": (summary.response, [call.took + call.waited for call in every]),
        "of the step": (summary.steps[0].service, [call.took for call in every]),
    }
    assert summary.failed == sum(call.failed for call in every) > 100
    for name, (latency, times) in found.items():
        assert latency is not None, name
        assert latency.count == len(times)
        for field, percent in QUANTILES.items():
            assert getattr(latency, field) == pytest.approx(truth(times, percent), rel=ERROR), (name, field)
        # sums are exact
        assert latency.mean == pytest.approx(float(np.mean(times)), rel=1e-6)
        assert latency.stdev == pytest.approx(float(np.std(times)), rel=1e-6)


def test_percentiles_of_each_second_are_those_of_its_calls(calls: list[list[Call]], summary: Summary) -> None:
    assert len(summary.points) == SECONDS
    for second, point in enumerate(summary.points):
        now = [call for some in calls for call in some if call.tenth // 10 == second]
        assert point.rate == len(now)
        assert point.response is not None
        for field in ("p50", "p90", "p95", "p99", "max"):
            service = truth([call.took for call in now], QUANTILES[field])
            response = truth([call.took + call.waited for call in now], QUANTILES[field])
            assert getattr(point, field) == pytest.approx(service, rel=ERROR)
            assert getattr(point.response, field) == pytest.approx(response, rel=ERROR)
    # where the target stood still, the service time says nothing of it
    assert summary.points[STILL].p50 == pytest.approx(summary.points[0].p50, rel=0.1)
    assert summary.points[STILL].response is not None
    assert summary.points[STILL].response.p50 > 0.5


def test_thresholds_see_what_the_summary_says(merged: list[Window], summary: Summary) -> None:
    judge = ThresholdJudge([parse(text) for text in ("p99.9 < 1h", "ok p99 < 1h", "response p95 < 1h", "failures < 1")])
    for window in merged:
        judge.add(window)

    values = [outcome.value for outcome in judge.finish()]

    assert summary.service is not None
    assert summary.ok is not None
    assert summary.response is not None
    assert values == [summary.service.p999, summary.ok.p99, summary.response.p95, summary.failed]


def test_the_distributions_have_every_call_within_its_bucket(calls: list[list[Call]], summary: Summary) -> None:
    every = [call for some in calls for call in some]
    for buckets, times in (
        (summary.distribution, [call.took for call in every]),
        (summary.response_distribution, [call.took + call.waited for call in every]),
    ):
        edges = sorted({edge for low, high, _ in buckets for edge in (low, high)})
        counted, _ = np.histogram(times, bins=edges)
        by_low = dict(zip(edges[:-1], counted.tolist(), strict=True))
        assert sum(n for _, _, n in buckets) == len(times)
        assert max(high / low for low, high, _ in buckets) < 1 + ERROR
        # on the border of two buckets, a float may be counted by either
        off = sum(abs(by_low[low] - n) for low, _, n in buckets)
        assert off <= 2 + len(times) // 10_000
