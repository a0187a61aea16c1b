"""How one number differs between two runs, and whether the difference means anything.

The rule: a number is *the same* if it changed by no more than the tolerance. A larger change counts as *better* or
*worse* only if chance does not explain it: the ranges in which the two values lie with a certainty of 95 % must not
overlap. The ranges come from the histograms of the runs if those are known. A run can have too few requests to tell:
fewer than ten beyond a percentile, fewer than 30 for a mean, fewer than 100 for a rate or a share that chance could
explain. Such a change is *unclear*, never the same.

The maximum is a single request, so it has no range. What counts is how many requests of one run took longer than the
slowest of the other: if both runs drew from the same distribution and had as many requests, the chance that the k
slowest all come from one run is 1 in 2 to the power of k.

A share of failed requests must change by a tenth of a percentage point, too: one more failure in a million requests
does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from ..stats.model import Latency, StepSummary, Summary
from .words import rate_text, share_text, time_text

#: standard deviations on each side, for 95 %
_SIGMAS = 1.96
#: values that must lie beyond a percentile
_BEYOND = 10
#: requests that a mean needs for a range that can be trusted
_FOR_MEAN = 30
#: requests below which a rate or a share that chance could explain is unclear
_FOR_SHARE = 100
#: the least change of the share of failed requests that counts
_POINTS = 0.001
#: the chance that the slowest requests all come from one run, on each side
_ONE_SIDED = 0.025
_TOO_FEW = "too few requests"
_CHANCE = "within chance"

Judgement = Literal["better", "worse", "same", "unclear"]
Direction = Literal["better", "worse", "none"]
Buckets = Sequence[tuple[float, float, int]]
Range = tuple[float, float]
Counted = Summary | StepSummary


class MetricChange(msgspec.Struct, frozen=True, kw_only=True):
    """One number in both runs."""

    metric: str
    """rate, failed, mean, p50, p95, p99, max, response p50, ..."""
    a: float
    """seconds, requests a second, or a share"""
    b: float
    change: float | None
    """as a share of `a`; None if `a` is zero"""
    judgement: Judgement
    direction: Direction = "none"
    """the direction of a change beyond the tolerance, even if it does not count"""
    note: str = ""
    """why a change beyond the tolerance does not count"""


def value_text(change: MetricChange) -> tuple[str, str]:
    """Both values, as people read them."""
    if change.metric == "rate":
        return rate_text(change.a), rate_text(change.b)
    if change.metric == "failed":
        return share_text(change.a, 1), share_text(change.b, 1)
    return time_text(change.a), time_text(change.b)


def rate_change(a: Counted, b: Counted, tolerance: float) -> MetricChange:
    """Requests a second: more is better."""
    ranges = [_around(one.rate, one.rate * _SIGMAS / math.sqrt(max(1, one.requests))) for one in (a, b)]
    doubt = _doubt(ranges, (a.requests, b.requests), needed=_FOR_SHARE)
    return _judged("rate", (a.rate, b.rate), tolerance, more_is="better", doubt=doubt)


def failed_change(a: Counted, b: Counted, tolerance: float) -> MetricChange:
    """The share of failures: of the requests, and of the exceptions without a request."""
    tried = [one.requests + one.raised - one.raised_after for one in (a, b)]
    shares = [(max(one.failed, round(one.error_rate * n)), n) for one, n in zip((a, b), tried, strict=True)]
    ranges = [_share_range(*one) for one in shares]
    (failed, attempted), (other_failed, other_attempted) = shares
    before, after = failed / attempted, other_failed / other_attempted
    doubt = _doubt(ranges, (attempted, other_attempted), needed=_FOR_SHARE)
    if abs(after - before) < _POINTS:
        doubt = doubt or "less than 0.1 % of all"
    return _judged("failed", (before, after), tolerance, more_is="worse", doubt=doubt)


def time_changes(
    a: Latency, b: Latency, histograms: tuple[Buckets | None, Buckets | None], tolerance: float, prefix: str = ""
) -> list[MetricChange]:
    """The mean, percentiles and the maximum: less is better."""
    fewest = min(a.count, b.count)
    means = [_around(one.mean, _SIGMAS * one.stdev / math.sqrt(max(1, one.count))) for one in (a, b)]
    doubt = {"mean": _TOO_FEW if fewest < _FOR_MEAN else _by_chance(means)}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        doubt[name] = ""
        if fewest * (1 - share) < _BEYOND:
            doubt[name] = _TOO_FEW
        elif histograms[0] and histograms[1]:
            doubt[name] = _by_chance([percentile_range(one, share) for one in histograms if one])
    doubt["max"] = _slowest_by_chance(a, b, histograms)
    return [
        _judged(prefix + name, (getattr(a, name), getattr(b, name)), tolerance, more_is="worse", doubt=why)
        for name, why in doubt.items()
    ]


def _judged(
    metric: str, values: Range, tolerance: float, *, more_is: Literal["better", "worse"], doubt: str
) -> MetricChange:
    a, b = values
    change = (b - a) / a if a else (0.0 if b == a else None)
    if change is not None and abs(change) <= tolerance:
        return MetricChange(metric=metric, a=a, b=b, change=change, judgement="same")
    less_is: Literal["better", "worse"] = "worse" if more_is == "better" else "better"
    direction = more_is if b > a else less_is
    judgement: Judgement = direction
    if doubt:
        judgement = "unclear" if doubt == _TOO_FEW else "same"
    return MetricChange(metric=metric, a=a, b=b, change=change, judgement=judgement, direction=direction, note=doubt)


def _doubt(ranges: Sequence[Range], counts: tuple[int, int], *, needed: int) -> str:
    """Why a difference does not count: chance, or too few requests to rule chance out."""
    chance = _by_chance(ranges)
    return _TOO_FEW if chance and min(counts) < needed else chance


def _by_chance(ranges: Sequence[Range]) -> str:
    (low, high), (other_low, other_high) = ranges
    return _CHANCE if low <= other_high and other_low <= high else ""


def _slowest_by_chance(a: Latency, b: Latency, histograms: tuple[Buckets | None, Buckets | None]) -> str:
    """Whether chance explains that the slowest request of one run was slower than that of the other."""
    slower, faster, buckets = (b, a, histograms[1]) if b.max > a.max else (a, b, histograms[0])
    beyond = _beyond(slower, buckets, faster.max)
    chance = (slower.count / max(1, slower.count + faster.count)) ** beyond
    return "" if chance < _ONE_SIDED else _CHANCE


def _beyond(latency: Latency, buckets: Buckets | None, limit: float) -> int:
    """The least number of requests that took longer than the limit."""
    slowest = 1 if latency.max > limit else 0
    if buckets:
        return max(sum(n for low, _, n in buckets if low >= limit), slowest)
    for name, share in (("p50", 0.5), ("p75", 0.25), ("p90", 0.1), ("p95", 0.05), ("p99", 0.01), ("p999", 0.001)):
        if getattr(latency, name) > limit:
            return max(1, math.floor(latency.count * share))
    return slowest


def _around(value: float, width: float) -> Range:
    return value - width, value + width


def _share_range(count: int, total: int) -> Range:
    """Wilson's interval, which also holds for shares near zero."""
    share, z = count / total, _SIGMAS
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    width = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return _around(middle, width)


def percentile_range(buckets: Buckets, share: float) -> Range:
    """The range of a percentile: the values at the ranks by which a sample of this size may be off.

    >>> percentile_range([(1.0, 2.0, 500), (2.0, 4.0, 500)], 0.9)
    (2.0, 4.0)
    """
    total = sum(n for _, _, n in buckets)
    off = _SIGMAS * math.sqrt(total * share * (1 - share))
    low_rank, high_rank = max(1, math.floor(total * share - off)), min(total, math.ceil(total * share + off))
    low = high = 0.0
    upto = 0
    for bottom, top, n in buckets:
        if upto < low_rank <= upto + n:
            low = bottom
        if upto < high_rank <= upto + n:
            high = top
        upto += n
    return low, high
