"""Summaries of load tests that never were."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import msgspec

from mainstay.load.stats.model import (
    CheckSummary,
    Header,
    Latency,
    MetricSummary,
    OutputOutcome,
    Percentiles,
    Point,
    StepSummary,
    Summary,
    TagSummary,
    ThresholdOutcome,
    Trust,
)

RUN = "01a1e488-58c6-7024-8920-ed28f4dd4807"


def latency(values: list[float]) -> Latency:
    values = sorted(values)
    n = len(values)
    mean = sum(values) / n

    def at(share: float) -> float:
        return values[max(0, math.ceil(share * n) - 1)]

    return Latency(
        count=n,
        mean=mean,
        stdev=math.sqrt(sum((one - mean) ** 2 for one in values) / n),
        min=values[0],
        p50=at(0.5),
        p75=at(0.75),
        p90=at(0.9),
        p95=at(0.95),
        p99=at(0.99),
        p999=at(0.999),
        max=values[-1],
    )


def scaled(found: Latency, by: float) -> Latency:
    values = {name: value * by for name, value in msgspec.structs.asdict(found).items() if name != "count"}
    return Latency(count=found.count, **values)


@functools.cache
def drawn(seed: int, *, middle: float = 0.02, count: int = 4000, slow: float = 0.01) -> list[float]:
    """Times around `middle`, and a few that took 1.5 s."""
    rng = random.Random(seed)
    return [
        rng.lognormvariate(math.log(middle), 0.5) if rng.random() > slow else rng.gauss(1.5, 0.03) for _ in range(count)
    ]


def binned(values: list[float]) -> list[tuple[float, float, int]]:
    """As the histogram of the statistics does: 128 buckets for each power of two."""
    found: dict[tuple[float, float], int] = {}
    for value in values:
        mantissa, exponent = math.frexp(value)
        place = int((mantissa - 0.5) * 256)
        low, high = math.ldexp(0.5 + place / 256, exponent), math.ldexp(0.5 + (place + 1) / 256, exponent)
        found[low, high] = found.get((low, high), 0) + 1
    return [(low, high, n) for (low, high), n in sorted(found.items())]


def a_step(name: str, values: list[float], *, failed: int = 0, elapsed: float = 60.0, **given: Any) -> StepSummary:
    service = latency(values)
    n = service.count
    phases = {
        "connect": latency([0.0012] * 50),
        "send": scaled(service, 0.001),
        "wait": scaled(service, 0.9),
        "receive": scaled(service, 0.09),
    }
    fields: dict[str, Any] = {
        "workflow": "Shop",
        "step": name,
        "requests": n,
        "failed": failed,
        "rate": n / elapsed,
        "service": service,
        "phases": phases,
        "statuses": {"200": n - failed} | ({"500": failed} if failed else {}),
        "errors": {"status 500": failed} if failed else {},
        "sent": n * 120,
        "received": n * 2048,
    }
    return StepSummary(**{**fields, **given})


def a_tag(tag: str, value: str, values: list[float], **given: Any) -> TagSummary:
    n = len(values)
    fields: dict[str, Any] = {
        "tag": tag,
        "value": value,
        "steps": ["Shop.login", "Shop.browse"],
        "requests": n,
        "failed": 0,
        "rate": n / 60.0,
        "service": latency(values),
    }
    return TagSummary(**{**fields, **given})


def a_header(**given: Any) -> Header:
    fields: dict[str, Any] = {
        "run": RUN,
        "name": "shop",
        "started_ms": 1_794_835_392_130,
        "version": "0.1.0",
        "processes": 2,
        "duration_s": 60.0,
        "workflows": [
            {"name": "Shop", "model": "50 users", "vus": 50, "steps": [{"name": "login"}, {"name": "browse"}]},
        ],
        "thresholds": ["p95 of browse < 200ms"],
    }
    return Header(**{**fields, **given})


def points(
    count: int = 60, *, steps: tuple[str, ...] = ("Shop.login", "Shop.browse"), seed: int = 1, late: float = 0.0
) -> list[Point]:
    """`late`: of an open model, by how much requests could not begin when they were due."""
    rng = random.Random(seed)
    made = []
    for at in range(count):
        middle = 0.018 * rng.uniform(0.9, 1.1) * (3 if count // 2 <= at < count // 2 + 5 else 1)
        tail = middle * rng.uniform(4, 8)
        rate = 133 * rng.uniform(0.9, 1.1)
        made.append(
            Point(
                at_s=float(at),
                width_s=1.0,
                users=min(50, (at + 1) * 5),
                rate=rate,
                failed=rate * 0.1 if count // 2 <= at < count // 2 + 5 else 0.0,
                p50=middle,
                p90=middle * 2,
                p95=middle * 2.5,
                p99=tail,
                max=tail * rng.uniform(1, 20),
                response=Percentiles(
                    p50=middle + late,
                    p90=middle * 2 + late,
                    p95=middle * 2.5 + late,
                    p99=tail + late,
                    max=9 * tail + late,
                )
                if late
                else None,
                by_step={
                    one: [rate / 2, *times, *(value + late for value in times if late)]
                    for one, times in (
                        (one, [middle * (n + 1), middle * 2.5 * (n + 1), tail]) for n, one in enumerate(steps)
                    )
                },
            )
        )
    return made


def a_summary(*, count: int = 4000, **given: Any) -> Summary:
    """A closed run of a minute: two steps, some errors, one threshold that holds."""
    login, browse = drawn(1, count=count), drawn(2, middle=0.035, count=count)
    both = login + browse
    fields: dict[str, Any] = {
        "header": a_header(),
        "elapsed_s": 60.04,
        "requests": len(both),
        "failed": 66,
        "rate": len(both) / 60.04,
        "iterations": count,
        "users": 50,
        "sent_calls": len(both),
        "answered_calls": len(both),
        "service": latency(both),
        "sent": 960_000,
        "received": 16_384_000,
        "steps": [a_step("login", login, failed=66), a_step("browse", browse)],
        "checks": [CheckSummary(workflow="Shop", step="has_items", passed=count - 3, failed=3, reasons={"empty": 3})],
        "metrics": [
            MetricSummary(name="orders", type="counter", value=1234, rate=20.55, count=1234),
            MetricSummary(name="cart", type="trend", value=3.4, count=900, low=1, high=9, values=latency([3.4] * 900)),
            MetricSummary(name="hits", type="rate", value=0.83, count=4000),
            MetricSummary(name="stock", type="gauge", value=17, count=60, low=3, high=99, tags={"shop": "north"}),
        ],
        "errors": {"status 500": 66},
        "examples": {"status 500": "POST http://127.0.0.1:8080/login answered 500"},
        "thresholds": [
            ThresholdOutcome(text="p95 of browse < 200ms", passed=True, value=0.081, shown="81 ms"),
            ThresholdOutcome(text="rate > 100/s", passed=True, value=133.2, shown="133/s"),
        ],
        "outputs": [OutputOutcome(name="json shop.json")],
        "stream": "shop.ndjson.zst",
        "points": points(),
        "distribution": binned(both),
    }
    return Summary(**{**fields, **given})


def an_open_summary(**given: Any) -> Summary:
    """One at a rate, whose target stood still for two seconds: untrustworthy, and failed."""
    values = drawn(3)
    waited = [one + (2.0 if place % 20 == 0 else 0.0) for place, one in enumerate(values)]
    step = a_step("browse", values, response=latency(waited), skipped=4)
    fields: dict[str, Any] = {
        "header": a_header(
            workflows=[
                {"name": "Shop", "model": "2,000/s", "rate": "2000/s", "steps": []},
                {"name": "Checkout", "model": "1 user", "steps": []},
            ]
        ),
        "requests": len(values),
        "rate": len(values) / 60.04,
        "failed": 0,
        "arrivals": len(values) + 40,
        "dropped": 40,
        "aborted": 2,
        "service": latency(values),
        "response": latency(waited),
        "steps": [step],
        "errors": {},
        "examples": {},
        "checks": [],
        "thresholds": [
            ThresholdOutcome(text="p95 of browse < 20ms", passed=False, value=0.081, shown="81 ms", at_s=12.0),
            ThresholdOutcome(text="counter orders > 5", passed=False),
        ],
        "trust": Trust(ok=False, reasons=["process 1 used 97 % of its core for 12 s: add --processes or machines"]),
        "verdict": "failed",
        "skipped": {"Checkout": "Shop, which it depends on, failed in setup", "Shop teardown": "failed: KeyError"},
        "outputs": [OutputOutcome(name="html x/y.html", error="the disk is full")],
        "distribution": binned(values),
        "response_distribution": binned(waited),
        "points": points(steps=("Shop.browse",), late=2.0),
    }
    return a_summary(**{**fields, **given})


def an_empty_summary(**given: Any) -> Summary:
    """One that never made a request."""
    return Summary(
        **{
            "header": a_header(duration_s=None, thresholds=[]),
            "elapsed_s": 0.0,
            "requests": 0,
            "failed": 0,
            "rate": 0.0,
            "iterations": 0,
            "users": 0,
            "ended": "failed: setup of Shop raised ValueError: no shop",
            "verdict": "failed",
            **given,
        }
    )
