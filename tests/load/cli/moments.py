"""Load tests that never ran: what their outputs are given, made up from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from mainstay.load.stats.histogram import Histogram
from mainstay.load.stats.model import (
    CheckStats,
    Header,
    Health,
    Moment,
    Sketch,
    StepStats,
    ThresholdOutcome,
    Trust,
    Window,
)

STARTED_MS = 1_900_000_000_000


def header(*steps: str, duration_s: float | None = 60.0, name: str = "shop", processes: int = 2) -> Header:
    return Header(
        run="01a1e20f-5355-7137-b2a7-4de452e6b59d",
        name=name,
        started_ms=STARTED_MS,
        version="0.1",
        processes=processes,
        duration_s=duration_s,
        workflows=[{"name": "Shop", "model": "50 users", "steps": [{"name": step} for step in steps]}],
    )


def sketch(rng: random.Random, n: int, median_s: float) -> Sketch | None:
    values = Histogram()
    values.add(np.array([rng.lognormvariate(0, 0.6) * median_s for _ in range(n)]))
    return values.sketch()


def moments(
    of: Header,
    *,
    seconds: float,
    a_second: int = 500,
    failing: float = 0.0,
    intended: bool = False,
    distrust: tuple[str, ...] = (),
    seed: int = 1,
    slower: float = 1.0,
) -> Iterator[Moment]:
    """What a run says of itself in its first seconds."""
    rng = random.Random(seed)
    names = [step["name"] for step in of.workflows[0]["steps"]]
    outcome = ThresholdOutcome(text="p95 of browse < 200ms for 10s", passed=True, value=0.1, shown="100 ms")
    broken = ThresholdOutcome(text="error rate < 1%", passed=failing <= 0.01, value=failing, shown=f"{failing:.1%}")
    for bucket in range(round(seconds * 10)):
        steps = []
        for place, name in enumerate(names):
            n = a_second // 10
            bad = sum(rng.random() < failing for _ in range(n))
            steps.append(
                StepStats(
                    workflow="Shop",
                    step=name,
                    ok=sketch(rng, n - bad, slower * 0.02 * (1 + place)),
                    failed=sketch(rng, bad, 0.05) if bad else None,
                    response=sketch(rng, n, 0.5) if intended else None,
                    statuses={"200": n - bad},
                    errors={"http 503": bad} if bad else {},
                )
            )
        yield Moment(
            window=Window(
                bucket=STARTED_MS // 100 + bucket,
                users=50,
                iterations=a_second // 10,
                steps=steps,
                checks=[CheckStats(workflow="Shop", step="fine", passed=9, failed=1)],
                examples={"http 503": "503 Service Unavailable"} if failing else {},
                health={
                    process: Health(lag=0.002, cpu=0.4 + 0.3 * process, memory=50_000_000, files=60, files_limit=1024)
                    for process in range(of.processes)
                },
            ),
            elapsed_s=(bucket + 1) / 10,
            phase="running",
            thresholds=[outcome, broken],
            trust=Trust(ok=not distrust, reasons=list(distrust)),
        )
