"""How one number differs between two runs, and whether that is news.

The rule: a number is *the same* while it changed by no more than the tolerance. A larger change counts only if it is
more than chance: the ranges in which the two values lie with a certainty of 95 % must not overlap. Those are taken
from the histograms of the runs where they are known, and from the number of requests else; a percentile with fewer than
ten requests beyond it is not judged. A share of failed requests must change by a tenth of a percentage point, too: one
failure more in a million is no news.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from ...load.stats.model import Latency, StepSummary, Summary
from .words import rate_text, share_text, time_text

#: standard deviations on each side, for 95 %
_SIGMAS = 1.96
#: as many values must lie beyond a percentile
_BEYOND = 10
#: of failed requests, the least change that counts
_POINTS = 0.001

Judgement = Literal["better", "worse", "same"]
Buckets = Sequence[tuple[float, float, int]]
Range = tuple[float, float]
Counted = Summary | StepSummary


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One number in both runs."""

    metric: str
    """rate, failed, p50, p95, p99, response p50, ..."""
    a: float
    """seconds, a second, or a part"""
    b: float
    change: float | None
    """as a part of `a`; None where that is nothing"""
    judgement: Judgement
    note: str = ""
    """why a change beyond the tolerance does not count"""


def value_text(change: Change) -> tuple[str, str]:
    """Both values, as people read them."""
    if change.metric == "rate":
        return rate_text(change.a), rate_text(change.b)
    if change.metric == "failed":
        return share_text(change.a, 1), share_text(change.b, 1)
    return time_text(change.a), time_text(change.b)


def rate_change(a: Counted, b: Counted, tolerance: float) -> Change:
    """Requests a second: more is better."""
    ranges = [_around(one.rate, one.rate * _SIGMAS / math.sqrt(max(1, one.requests))) for one in (a, b)]
    return _judged("rate", (a.rate, b.rate), tolerance, more_is="better", unsure=_by_chance(ranges))


def failed_change(a: Counted, b: Counted, tolerance: float) -> Change:
    """The part that failed of the requests, and of what raised without one."""
    shares = [(one.failed + one.raised, one.requests + one.raised) for one in (a, b)]
    ranges = [_share_range(*one) for one in shares]
    before, after = (failed / attempted for failed, attempted in shares)
    unsure = _by_chance(ranges) or ("less than 0.1 % of all" if abs(after - before) < _POINTS else "")
    return _judged("failed", (before, after), tolerance, more_is="worse", unsure=unsure)


def time_changes(
    a: Latency, b: Latency, histograms: tuple[Buckets | None, Buckets | None], tolerance: float, prefix: str = ""
) -> list[Change]:
    """Percentiles: less is better."""
    found = []
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        unsure = ""
        if min(a.count, b.count) * (1 - share) < _BEYOND:
            unsure = "too few requests"
        elif histograms[0] and histograms[1]:
            unsure = _by_chance([percentile_range(one, share) for one in histograms if one])
        values = (getattr(a, name), getattr(b, name))
        found.append(_judged(prefix + name, values, tolerance, more_is="worse", unsure=unsure))
    return found


def _judged(metric: str, values: Range, tolerance: float, *, more_is: Judgement, unsure: str) -> Change:
    a, b = values
    change = (b - a) / a if a else (0.0 if b == a else None)
    within = change is not None and abs(change) <= tolerance
    judgement: Judgement = "same"
    if not within and not unsure:
        less_is: Judgement = "worse" if more_is == "better" else "better"
        judgement = more_is if b > a else less_is
    return Change(metric=metric, a=a, b=b, change=change, judgement=judgement, note="" if within else unsure)


def _by_chance(ranges: Sequence[Range]) -> str:
    (low, high), (other_low, other_high) = ranges
    return "within chance" if low <= other_high and other_low <= high else ""


def _around(value: float, width: float) -> Range:
    return value - width, value + width


def _share_range(count: int, total: int) -> Range:
    """Wilson's interval: it holds for shares near nothing, too."""
    share, z = count / total, _SIGMAS
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    width = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return _around(middle, width)


def percentile_range(buckets: Buckets, share: float) -> Range:
    """Between which values a percentile lies: the ranks around it by which a sample of this size may be off.

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
