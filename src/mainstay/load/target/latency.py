"""The delays of a target: distributions with exactly known quantiles.

Every delay is the quantile of a random share. So the same formula gives the imposed delays and the true percentiles.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Sequence
from statistics import NormalDist

from ...clock import seconds
from ...errors import InvalidInput
from .units import share_of

Quantile = Callable[[float], float]
_NORMAL = NormalDist()
_TINY = 1e-12
FORMS = (
    "none, '20ms', 'uniform 10ms 30ms', 'normal 20ms 5ms', 'lognormal 20ms 0.5', 'exponential 20ms', "
    "'bimodal 20ms 1.5s 1%' or 'trace p0=1ms p50=20ms p99=80ms p100=1s'"
)


class DelayDistribution:
    """A distribution of delays, in seconds.

    >>> slow = DelayDistribution("bimodal 20ms 1.5s 1%")
    >>> slow.quantile(0.5), slow.quantile(0.999)
    (0.02, 1.5)
    >>> DelayDistribution("uniform 0ms 40ms").exact()["p75"]
    0.03
    """

    __slots__ = ("is_none", "quantile", "text")

    def __init__(self, text: str = "none", *, field: str = "latency") -> None:
        self.text = text.strip()
        self.quantile: Quantile = _parse(self.text, field)
        """the delay that this share of all responses does not exceed"""
        self.is_none = self.text.lower() in ("", "none")

    def draw(self, rng: random.Random) -> float:
        return self.quantile(rng.random())

    def exact(self) -> dict[str, float]:
        """The percentiles of a perfect measurement."""
        shares = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
        return {name: self.quantile(share) for name, share in shares.items()}

    def __repr__(self) -> str:
        return f"DelayDistribution({self.text!r})"


def _parse(text: str, field: str) -> Quantile:
    kind, *rest = text.lower().split() or ["none"]
    if kind[0].isdigit():
        kind, rest = "constant", [kind, *rest]
    make = _KINDS.get(kind)
    if make is None:
        raise InvalidInput(field, f"{text!r} is not a latency; write {FORMS}")
    try:
        return make(rest, field)
    except InvalidInput:
        raise
    except ValueError:
        raise InvalidInput(field, f"{text!r} is not a latency; write {FORMS}") from None


def _none(rest: Sequence[str], _field: str) -> Quantile:
    () = rest
    return lambda _share: 0.0


def _constant(rest: Sequence[str], field: str) -> Quantile:
    (value,) = rest
    fixed = seconds(value, field=field)
    return lambda _share: fixed


def _uniform(rest: Sequence[str], field: str) -> Quantile:
    low, high = (seconds(value, field=field) for value in rest)
    if low > high:
        raise InvalidInput(field, "uniform takes the shorter time first")
    return lambda share: low + (high - low) * share


def _normal(rest: Sequence[str], field: str) -> Quantile:
    mean, deviation = (seconds(value, field=field) for value in rest)
    return lambda share: max(0.0, mean + deviation * _z(share))


def _lognormal(rest: Sequence[str], field: str) -> Quantile:
    median, spread = rest
    middle, sigma = seconds(median, field=field), float(spread)
    if sigma < 0 or not math.isfinite(sigma):
        raise InvalidInput(field, "sigma of lognormal must be zero or more, like 0.5")
    return lambda share: middle * math.exp(sigma * _z(share))


def _exponential(rest: Sequence[str], field: str) -> Quantile:
    (value,) = rest
    mean = seconds(value, field=field)
    return lambda share: -mean * math.log(max(_TINY, 1.0 - share))


def _bimodal(rest: Sequence[str], field: str) -> Quantile:
    often, seldom, part = rest
    usual, other = seconds(often, field=field), seconds(seldom, field=field)
    share_other = share_of(part, field=field)
    # the shorter one first: quantiles never fall
    first, second, edge = (usual, other, 1 - share_other) if usual <= other else (other, usual, share_other)
    return lambda share: first if share < edge else second


def _trace(rest: Sequence[str], field: str) -> Quantile:
    """Percentiles that were measured elsewhere, with straight lines between them."""
    points = []
    for point in rest:
        name, _, value = point.partition("=")
        points.append((float(name.removeprefix("p")) / 100, seconds(value, field=field)))
    shares, times = [share for share, _ in points], [time for _, time in points]
    rising = len(points) > 1 and shares == sorted(set(shares)) and times == sorted(times)
    if not rising or shares[0] < 0 or shares[-1] > 1:
        raise InvalidInput(field, "trace takes two percentiles or more, rising, like 'trace p50=20ms p99=80ms p100=1s'")

    def quantile(share: float) -> float:
        at = bisect.bisect_right(shares, share)
        if at == 0:
            return times[0]
        if at == len(shares):
            return times[-1]
        low, high = shares[at - 1], shares[at]
        return times[at - 1] + (times[at] - times[at - 1]) * (share - low) / (high - low)

    return quantile


def _z(share: float) -> float:
    return _NORMAL.inv_cdf(min(max(share, _TINY), 1 - _TINY))


_KINDS: dict[str, Callable[[Sequence[str], str], Quantile]] = {
    "none": _none,
    "constant": _constant,
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "exponential": _exponential,
    "bimodal": _bimodal,
    "trace": _trace,
}
