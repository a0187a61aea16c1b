"""From sums of windows to the parts of a summary."""

from __future__ import annotations

from collections.abc import Mapping

from .histogram import latency_of
from .model import Header, Latency, MetricSummary, StepSummary, TagSummary
from .sums import MetricSum, StepSum
from .tags import groups_of

_NOTHING = Latency(
    count=0, mean=0.0, stdev=0.0, min=0.0, p50=0.0, p75=0.0, p90=0.0, p95=0.0, p99=0.0, p999=0.0, max=0.0
)


def step_summary(step: StepSum, load_s: float) -> StepSummary:
    service = step.service()
    requests = step.ok.count + step.failed.count
    phases = {phase: latency_of(times.sketch()) for phase, times in step.phases.items()}
    return StepSummary(
        workflow=step.workflow,
        step=step.step,
        requests=requests,
        failed=step.failed.count,
        raised=step.raised,
        raised_after=step.raised_after,
        error_rate=step.error_rate,
        rate=per(requests, load_s),
        service=latency_of(service) or _NOTHING,
        ok=latency_of(step.ok.sketch()) if step.failed.count else None,
        response=latency_of(step.response.sketch()),
        phases={phase: latency for phase, latency in phases.items() if latency is not None},
        statuses=by_number(step.statuses),
        errors=by_number(step.errors),
        examples=dict(sorted(step.examples.items())),
        skipped=step.skipped,
        sent=step.sent,
        received=step.received,
    )


def tag_summaries(
    header: Header, steps: Mapping[tuple[str, str], StepSum], load_s: float, *, most: int
) -> list[TagSummary]:
    """One summary for each value of each tag, over the steps that have it."""
    summaries = []
    for (tag, value), members in groups_of(header).items():
        sums = [steps[one] for one in members if one in steps]
        whole = StepSum(tag, value)
        for one in sums:
            whole.add(one.stats(), most)
        if whole.ok.count or whole.failed.count or whole.errors:
            summaries.append(_tag_summary(whole, [f"{one.workflow}.{one.step}" for one in sums], load_s))
    return summaries


def _tag_summary(whole: StepSum, steps: list[str], load_s: float) -> TagSummary:
    one = step_summary(whole, load_s)
    shared = {name: getattr(one, name) for name in TagSummary.__struct_fields__ if hasattr(one, name)}
    return TagSummary(tag=whole.workflow, value=whole.step, steps=steps, **shared)


def metric_summary(metric: MetricSum, load_s: float) -> MetricSummary:
    stats = metric.stats()
    value = stats.total
    if stats.type == "rate":
        value = stats.total / stats.count if stats.count else 0.0
    elif stats.type == "trend":
        value = 0.0 if stats.values is None else stats.values.total / stats.values.count
    return MetricSummary(
        name=stats.name,
        type=stats.type,
        tags=stats.tags,
        value=value,
        rate=per(stats.total, load_s) if stats.type == "counter" else None,
        count=stats.count,
        low=stats.low,
        high=stats.high,
        values=latency_of(stats.values),
    )


def per(n: float, whole: float) -> float:
    return n / whole if whole else 0.0


def by_number(counts: dict[str, int]) -> dict[str, int]:
    """Sorted, largest count first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
