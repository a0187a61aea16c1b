"""Axes of charts: the place of a value, and the ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

#: seconds between the ticks of a time axis, in units that people use
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
#: above this ratio of the largest to the smallest value, small ones vanish on a linear axis
SPREAD = 20.0


class ChartAxis(msgspec.Struct, frozen=True):
    """Maps a value to its place, from 0 to 1."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """The place of a value; a value outside is placed at the edge.

        >>> ChartAxis(0, 10).place(5), ChartAxis(1, 100, log=True).place(10), ChartAxis(0, 10).place(99)
        (0.5, 0.5, 1.0)
        """
        if self.log:
            value = max(value, self.low)
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, part))

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the axis, about `most` of them.

        >>> ChartAxis(0, 9.3).ticks(), ChartAxis(0.001, 2, log=True).ticks()
        ([0.0, 2.0, 4.0, 6.0, 8.0], [0.001, 0.01, 0.1, 1.0])
        """
        return _log_ticks(self.low, self.high, most) if self.log else _even_ticks(self.low, self.high, most)

    def times(self, most: int = 6) -> list[float]:
        """Ticks for an axis of seconds.

        >>> ChartAxis(0, 95).times()
        [0, 30, 60, 90]
        """
        step: float = next((one for one in _TIMES if (self.high - self.low) / one <= most), 0)
        if step == 0:
            step = math.ceil((self.high - self.low) / most / 86400) * 86400
        if self.high - self.low < 2:
            return _even_ticks(self.low, self.high, most)
        return [one * step for one in _whole(self.low / step, self.high / step)]


def axis_over(values: Iterable[float], *, log: bool | None = None) -> ChartAxis | None:
    """An axis with room for all values; None if there are none. Linear by default, unless that would hide small values.

    >>> axis_over([3.0, 9.3]), axis_over([0.001, 0.1]), axis_over([])
    (ChartAxis(low=0.0, high=10.0, log=False), ChartAxis(low=0.001, high=0.1, log=True), None)
    """
    finite = [one for one in values if math.isfinite(one)]
    if not finite:
        return None
    positive = [one for one in finite if one > 0]
    if log is None:
        log = len(positive) == len(finite) and max(positive) / min(positive) > SPREAD
    if log and positive:
        return ChartAxis(*_decades(min(positive), max(positive)), True)
    top = max(0.0, *finite) or 1.0
    step = _round_step(top, 5)
    # `_clean`, so that 0.3 stays 0.3
    return ChartAxis(min(0.0, *finite), _clean(math.ceil(top / step - 1e-9) * step))


def _decades(low: float, high: float) -> tuple[float, float]:
    """Round bounds: 1, 2 or 5 times a power of ten, at least a factor of two apart."""
    steps = [_clean(part * 10.0**power) for power in range(-12, 13) for part in (1, 2, 5)]
    below = max((one for one in steps if one <= low * 1.0000001), default=low)
    above = min((one for one in steps if one >= high * 0.9999999), default=high)
    return (below, above) if above >= 2 * below * 0.999 else (below, below * 2)


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks: list[float] = []
    for parts in ((1, 2, 5), (1, 3), (1,)):
        ticks = [_clean(part * 10.0**power) for power in powers for part in parts]
        ticks = [one for one in ticks if low * 0.999 <= one <= high * 1.001]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


def _even_ticks(low: float, high: float, most: int) -> list[float]:
    step = _round_step(high - low, most)
    return [_clean(one * step) for one in _whole(low / step, high / step)]


def _round_step(span: float, most: int) -> float:
    size = 10.0 ** math.floor(math.log10(span / most))
    return next(size * part for part in (1, 2, 2.5, 5, 10) if span / (size * part) <= most * 1.0001)


def _whole(low: float, high: float) -> range:
    return range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)


def _clean(value: float) -> float:
    return float(f"{value:.9g}")
