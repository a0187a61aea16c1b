"""Windows made by hand, and by Hypothesis."""

from __future__ import annotations

from array import array

from hypothesis import strategies as st

from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import CheckStats, Header, Health, MetricStats, Sketch, StepStats, Window

#: where the buckets of made windows begin; any number would do
FIRST = 17_000_000_000


def header(*, steps: tuple[str, ...] = ("login", "browse"), thresholds: tuple[str, ...] = ()) -> Header:
    return Header(
        run="j1",
        name="shop",
        started_ms=FIRST * 100,
        version="0",
        processes=1,
        duration_s=60.0,
        workflows=[{"name": "Shop", "steps": [{"name": step, "kind": "measured", "after": []} for step in steps]}],
        thresholds=list(thresholds),
    )


def sketched(*values: float) -> Sketch | None:
    return sketch_of(array("d", values))


def step(
    name: str = "browse",
    *,
    ok: tuple[float, ...] = (),
    failed: tuple[float, ...] = (),
    response: tuple[float, ...] = (),
    workflow: str = "Shop",
) -> StepStats:
    """A step with these service times; what failed did so by its status."""
    return StepStats(
        workflow=workflow,
        step=name,
        ok=sketched(*ok),
        failed=sketched(*failed),
        response=sketched(*response),
        statuses={status: n for status, n in (("200", len(ok)), ("503", len(failed))) if n},
        errors={"status": len(failed)} if failed else {},
    )


def window(at: int, *steps: StepStats, users: int = 1, dropped: int = 0, arrivals: int = 0) -> Window:
    """The `at`-th tenth of a second of a run."""
    return Window(bucket=FIRST + at, users=users, steps=list(steps), dropped=dropped, arrivals=arrivals)


# halves of whole numbers sum to the same float in any order
_times = st.lists(st.integers(1, 2_000).map(lambda number: number / 2), max_size=5)
_counts = st.dictionaries(st.sampled_from(["200", "404", "timeout"]), st.integers(1, 9), max_size=3)
_sketches = _times.map(lambda times: sketched(*times))
_steps = st.builds(
    StepStats,
    workflow=st.just("Shop"),
    step=st.sampled_from(["login", "browse"]),
    ok=_sketches,
    failed=_sketches,
    response=_sketches,
    phases=st.dictionaries(st.sampled_from(["connect", "wait"]), _times.filter(bool).map(lambda t: sketched(*t))),
    statuses=_counts,
    errors=_counts,
    examples=st.dictionaries(st.sampled_from(["timeout", "closed"]), st.sampled_from(["one", "two"])),
    skipped=st.integers(0, 9),
    sent=st.integers(0, 99),
    received=st.integers(0, 99),
)
_checks = st.builds(
    CheckStats,
    workflow=st.just("Shop"),
    step=st.sampled_from(["fresh", "whole"]),
    passed=st.integers(0, 9),
    failed=st.integers(0, 9),
    reasons=_counts,
)
_counters = st.builds(
    MetricStats,
    name=st.sampled_from(["orders", "carts"]),
    type=st.just("counter"),
    tags=st.dictionaries(st.sampled_from(["shop"]), st.sampled_from(["a", "b"])),
    total=st.integers(0, 50).map(float),
    count=st.just(1),
    low=st.integers(0, 5).map(float),
    high=st.integers(5, 9).map(float),
)
_gauges = st.builds(
    MetricStats, name=st.just("depth"), type=st.just("gauge"), total=st.integers(0, 50).map(float), count=st.just(1)
)
_trends = st.builds(
    MetricStats, name=st.just("size"), type=st.just("trend"), count=st.just(1), values=_sketches.filter(bool)
)
#: powers of two, so that means are exact
_health = st.builds(
    Health, lag=st.integers(0, 99).map(float), cpu=st.sampled_from([0.0, 0.25, 0.5, 1.0]), files=st.integers(0, 9)
)


def windows(process: int, bucket: int) -> st.SearchStrategy[Window]:
    """Any window of this process and bucket."""
    return st.builds(
        Window,
        bucket=st.just(FIRST + bucket),
        process=st.just(process),
        users=st.integers(0, 9),
        iterations=st.integers(0, 9),
        arrivals=st.integers(0, 9),
        dropped=st.integers(0, 9),
        aborted=st.integers(0, 9),
        sent_calls=st.integers(0, 9),
        answered_calls=st.integers(0, 9),
        resent_calls=st.integers(0, 9),
        unexpected=st.integers(0, 9),
        steps=st.lists(_steps, max_size=2, unique_by=lambda made: made.step),
        checks=st.lists(_checks, max_size=2, unique_by=lambda made: made.step),
        metrics=st.lists(_counters | _gauges | _trends, max_size=3, unique_by=lambda made: (made.name, str(made.tags))),
        examples=st.dictionaries(st.sampled_from(["timeout", "closed"]), st.sampled_from(["one", "two"])),
        health=_health.map(lambda made: {process: made}),
    )
