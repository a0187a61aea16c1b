"""Percentiles are those of what happened, over processes and windows.

With times that are made up, so that no machine is too busy to tell; `python -m bench.load_accuracy` does the same
against a target, on the clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from mainstay.load.stats.model import Latency
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.trials import GET, ran, told, written

pytestmark = pytest.mark.slow

#: each user draws times of its own, and tells all of them when it leaves
MADE_UP = """
from mainstay.load.target import DelayDistribution
known = DelayDistribution("bimodal 20ms 1.5s 1%")

class Shop(Workflow):
    iterations, vus = 20_000, 8

    def __init__(self):
        self.drawn = []

    @step()
    async def call(self) -> CustomResult:
        self.drawn.append(took := known.draw(self.vu.random))
        if len(self.drawn) % 100 == 0:
            await asyncio.sleep(0.02)
        return CustomResult(started=1.0, ended=1.0 + took, failure="slow" if took > 1 else "")

    @on_stop
    async def tell(self):
        with open(os.environ["TRIAL_FILE"], "a") as file:
            file.write("".join(f"{took}\\n" for took in self.drawn))
"""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def ranked(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(round(share * len(values), 6)) - 1)]


def far_off(found: Latency, truth: Sequence[float]) -> dict[str, float]:
    """By percentile, the part that it is off."""
    return {name: abs(getattr(found, name) / ranked(truth, share) - 1) for name, share in QUANTILES.items()}


@pytest.mark.parametrize("processes", [1, 2])
async def test_percentiles_are_within_the_error_of_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setenv("TRIAL_FILE", str(tmp_path / "drawn.txt"))

    summary = await ran(written(tmp_path, MADE_UP), processes=processes)

    truth = [float(line) for line in told(tmp_path / "drawn.txt")]
    assert summary.requests == len(truth) == 20_000
    assert summary.failed == sum(took > 1 for took in truth) > 100
    assert summary.service is not None
    assert max(far_off(summary.service, truth).values()) < 0.008
    assert summary.service.mean == pytest.approx(sum(truth) / len(truth), rel=1e-6)
    assert (summary.service.min, summary.service.max) == (pytest.approx(0.02), pytest.approx(1.5))


@pytest.mark.parametrize("processes", [1, 2])
async def test_what_the_target_imposed_is_what_is_measured(tmp_path: Path, processes: int) -> None:
    async with TargetServer(TargetOptions(latency="bimodal 100ms 700ms 10%", seed=3)) as target:
        summary = await ran(written(tmp_path, GET), vus=20, iterations=200, processes=processes, base_url=target.url)
        taken = target.delays().taken

    assert len(taken) == summary.requests == 200
    assert summary.service is not None
    for name, share in QUANTILES.items():
        # never less than it was; more only as far as this machine is slow
        truth = ranked(taken, share)
        assert truth * 0.992 <= getattr(summary.service, name) <= truth * 1.02 + 0.1
