"""Histograms with a bounded value error: base-2 log-linear, like HdrHistogram, for any float.

The number of a bucket is the exponent of a value and the first 7 bits of its mantissa, which are the upper bits of the
float; negative values mirror positive ones. So a bucket is less than 0.8 % of its values wide, its middle is within
0.4 % of each of them, and finding it needs no logarithm. Bucket 0 contains zero. (Below 2.3e-308, where floats
themselves lose precision, buckets are wider.)

A `Sketch` is the data: sorted buckets, which are sent and stored. `sketch_of` makes one from values, `merged` adds
several; addition is associative and commutative. A `Histogram` is for values that arrive in batches.
"""

from __future__ import annotations

import math
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, TypeAlias

from msgspec.structs import replace

from ...errors import InvalidInput
from ..extra import extra_needed
from .model import Latency, Sketch

with extra_needed("a load test"):
    import numpy as np

Values: TypeAlias = "array[float] | np.ndarray[Any, np.dtype[np.float64]]"

#: lower bits of a float, which do not affect its bucket
_SHIFT = 52 - 7
#: all bits but the sign
_MAGNITUDE = (1 << 63) - 1
#: the sum of squares must stay finite
LARGEST = 1e150
#: for fewer values, numpy costs more than it saves (measured: 10 values 6 µs instead of 15, 40 the same)
_FEW = 40
#: buckets that a dense count may span (a range of 1:1000 has 1,280); a wider range is counted by sorting
_SPAN = 1 << 14

#: buckets of all sketches from which on numpy adds them sooner (measured, 200 buckets each: 4 sketches 36 µs instead of
#: 49, 33 of them 221 instead of 375)
_MANY = 400
#: sketches that wait to be added to a sum
_MOST_PARTS = 32

_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


def usable(value: float, *, field: str) -> float:
    """Return the value if a histogram can count it; raises `InvalidInput`.

    >>> usable(float("nan"), field="cart")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: cart: nan cannot be counted; a value must be finite and at most 1e150
    """
    if not -LARGEST <= value <= LARGEST:
        raise InvalidInput(field, f"{value!r} cannot be counted; a value must be finite and at most {LARGEST:g}")
    return value


def sketch_of(values: Values) -> Sketch | None:
    """The sketch of some values; None if there are none.

    >>> sketch_of(array("d", [0.25, 0.25, 4.0]))
    Sketch(at=[130688, 131200], n=[2, 1], count=3, total=4.5, squares=16.125, low=0.25, high=4.0)
    """
    count = len(values)
    if count == 0:
        return None
    if count > _FEW:
        return _sketch_of_many(np.asarray(values, dtype=np.float64))
    if not isinstance(values, array):
        values = array("d", values.tolist())
    total, low, high = sum(values), min(values), max(values)
    if not -LARGEST <= low <= high <= LARGEST or math.isnan(total):
        _refuse(values)
    bits: memoryview[int] = memoryview(values).cast("B").cast("q")
    counts: dict[int, int] = {}
    for bit in bits:
        at = bit >> _SHIFT if bit >= 0 else -((bit & _MAGNITUDE) >> _SHIFT)
        counts[at] = counts.get(at, 0) + 1
    rising = sorted(counts)
    return Sketch(rising, [counts[at] for at in rising], count, total, sum(map(mul, values, values)), low, high)


def _sketch_of_many(values: np.ndarray[Any, np.dtype[np.float64]]) -> Sketch:
    low, high = float(values.min()), float(values.max())
    if not -LARGEST <= low <= high <= LARGEST:
        _refuse(values.tolist())
    at = (np.ascontiguousarray(values).view(np.int64) & _MAGNITUDE) >> _SHIFT
    if low < 0:
        np.negative(at, where=values < 0, out=at)
    first, last = number_of(low), number_of(high)
    if last - first < _SPAN:
        counts = np.bincount(at - first)
        hit = counts.nonzero()[0]
        numbers, n = (hit + first).tolist(), counts[hit].tolist()
    else:
        unique, often = np.unique(at, return_counts=True)
        numbers, n = unique.tolist(), often.tolist()
    return Sketch(numbers, n, len(values), float(values.sum()), float(np.dot(values, values)), low, high)


def _refuse(values: Sequence[float]) -> None:
    for value in values:
        usable(value, field="value")


def number_of(value: float) -> int:
    """The bucket of a value."""
    number: int = struct.unpack("<q", struct.pack("<d", abs(value)))[0] >> _SHIFT
    return -number if value < 0 else number


def bounds_of(number: int) -> tuple[float, float]:
    """The bounds of a bucket; the one nearer to zero is inclusive.

    >>> bounds_of(number_of(0.3))
    (0.298828125, 0.30078125)
    """
    if number == 0:
        return 0.0, 0.0
    near, far = struct.unpack("<dd", struct.pack("<qq", abs(number) << _SHIFT, (abs(number) + 1) << _SHIFT))
    return (near, far) if number > 0 else (-far, -near)


class Histogram:
    """Counts values.

    Count, sum, minimum and maximum are exact; a percentile is within 0.4 % of the value of that rank. Values must be
    finite.

    >>> measured = Histogram()
    >>> measured.add(array("d", [0.010, 0.012, 0.011, 0.250]))
    >>> measured.count, measured.low, measured.high
    (4, 0.01, 0.25)
    >>> round(measured.percentile(0.5), 4)
    0.011
    """

    __slots__ = ("count", "counts", "high", "low", "squares", "total")

    def __init__(self, sketches: Iterable[Sketch] = ()) -> None:
        self.counts: dict[int, int] = {}
        """by the number of the bucket"""
        self.count = 0
        self.total = 0.0
        self.squares = 0.0
        self.low = math.inf
        self.high = -math.inf
        for sketch in sketches:
            self.merge(sketch)

    def add(self, values: Values) -> None:
        """Count these values; raises `InvalidInput` for one that is not finite, and counts none then."""
        sketch = sketch_of(values)
        if sketch is not None:
            self.merge(sketch)

    def merge(self, other: Histogram | Sketch) -> None:
        """Add the counts of another one."""
        counts = self.counts
        numbered = zip(other.at, other.n, strict=True) if isinstance(other, Sketch) else other.counts.items()
        if not counts:
            # the first merge then costs a quarter of the others
            counts.update(numbered)
        else:
            get = counts.get
            for at, n in numbered:
                counts[at] = get(at, 0) + n
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)

    def sketch(self) -> Sketch | None:
        """The counts as a sketch; None while nothing is counted."""
        if not self.count:
            return None
        rising = sorted(self.counts)
        n = list(map(self.counts.__getitem__, rising))
        return Sketch(rising, n, self.count, self.total, self.squares, self.low, self.high)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def stdev(self) -> float | None:
        """Of the values themselves, not an estimate for a population."""
        return _stdev(self) if self.count else None

    def percentile(self, q: float) -> float | None:
        """The value that a share `q` (0 to 1) of all values does not exceed: the one of rank ceil(q * count)."""
        return percentiles_of(self.sketch(), (q,))[0]

    def latency(self) -> Latency | None:
        """The usual numbers; None while nothing is counted."""
        return latency_of(self.sketch())

    def buckets(self) -> list[tuple[float, float, int]]:
        """The buckets that are not empty, in rising order: from, to, count."""
        return buckets_of(self.sketch())


def merged(sketches: Iterable[Sketch | None]) -> Sketch | None:
    """The sum of some sketches; None if there are none.

    >>> merged([sketch_of(array("d", [0.25, 4.0])), None, sketch_of(array("d", [0.25]))])
    Sketch(at=[130688, 131200], n=[2, 1], count=3, total=4.5, squares=16.125, low=0.25, high=4.0)
    """
    present = [sketch for sketch in sketches if sketch is not None]
    if len(present) < 2:
        return present[0] if present else None
    if sum(len(sketch.at) for sketch in present) >= _MANY:
        low, high = min(sketch.low for sketch in present), max(sketch.high for sketch in present)
        if number_of(high) - number_of(low) < _SPAN:
            return _merged_densely(present, low, high)
    return Histogram(present).sketch()


def coarser(sketch: Sketch, bits: int) -> Sketch:
    """The same values in fewer buckets: each is as wide as 2**bits of them. Count, sum, lowest and highest stay exact.

    >>> coarser(sketch_of(array("d", [0.25, 0.2501, 0.26, 4.0])), 5).n
    [3, 1]
    """
    if not bits:
        return sketch
    first, last = number_of(sketch.low), number_of(sketch.high)
    counts: dict[int, int] = {}
    for at, n in zip(sketch.at, sketch.n, strict=True):
        # the middle of the wide bucket, which must not be beyond the values; zero stays zero
        middle = min(max((at >> bits << bits) + (1 << bits >> 1), first), last) if at else 0
        counts[middle] = counts.get(middle, 0) + n
    rising = sorted(counts)
    return replace(sketch, at=rising, n=[counts[at] for at in rising])


def error_of(bits: int) -> float:
    """How far a percentile of a `coarser` sketch may be from the value of its rank, as a share of that value."""
    return 2.0**bits / 2**8


def _merged_densely(sketches: Sequence[Sketch], low: float, high: float) -> Sketch:
    at: list[int] = []
    n: list[int] = []
    for sketch in sketches:
        at += sketch.at
        n += sketch.n
    first = number_of(low)
    # counts are exact as floats, up to 2**53
    counts = np.bincount(np.frombuffer(array("q", at), np.int64) - first, np.frombuffer(array("q", n), np.int64))
    hit = counts.nonzero()[0]
    return Sketch(
        (hit + first).tolist(),
        counts[hit].astype(np.int64).tolist(),
        sum(sketch.count for sketch in sketches),
        sum(sketch.total for sketch in sketches),
        sum(sketch.squares for sketch in sketches),
        low,
        high,
    )


def percentiles_of(sketch: Sketch | None, qs: Iterable[float]) -> list[float | None]:
    """The values that these shares (0 to 1) of all values do not exceed: those of rank ceil(q * count)."""
    if sketch is None:
        return [None for _ in qs]
    upto = list(accumulate(sketch.n))
    return [_ranked(sketch, q, upto) for q in qs]


def _ranked(sketch: Sketch, q: float, upto: list[int]) -> float:
    # 0.07 * 100 is a little above 7, and must not become 8
    rank = math.ceil(round(q * sketch.count, 6))
    if rank <= 1:
        return sketch.low
    if rank >= sketch.count:
        return sketch.high
    near, far = bounds_of(sketch.at[bisect_left(upto, rank)])
    return min(max((near + far) / 2, sketch.low), sketch.high)


def latency_of(sketch: Sketch | None) -> Latency | None:
    """The usual numbers of a sketch."""
    if sketch is None:
        return None
    upto = list(accumulate(sketch.n))
    p50, p75, p90, p95, p99, p999 = (_ranked(sketch, q, upto) for q in _QUANTILES)
    return Latency(
        count=sketch.count,
        mean=sketch.total / sketch.count,
        stdev=_stdev(sketch),
        min=sketch.low,
        p50=p50,
        p75=p75,
        p90=p90,
        p95=p95,
        p99=p99,
        p999=p999,
        max=sketch.high,
    )


def buckets_of(sketch: Sketch | None) -> list[tuple[float, float, int]]:
    """The buckets that are not empty, in rising order: from, to, count."""
    return [] if sketch is None else [(*bounds_of(at), n) for at, n in zip(sketch.at, sketch.n, strict=True)]


def _stdev(values: Histogram | Sketch) -> float:
    mean = values.total / values.count
    return math.sqrt(max(0.0, values.squares / values.count - mean * mean))


class SketchSum:
    """A running sum of sketches. They are added when the sum is asked for, or when many are waiting, so that a sketch
    that is alone is never taken apart."""

    __slots__ = ("_parts", "count")

    def __init__(self) -> None:
        self._parts: list[Sketch] = []
        self.count = 0
        """values in all of them"""

    def add(self, sketch: Sketch | None) -> None:
        if sketch is not None:
            self._parts.append(sketch)
            self.count += sketch.count
            if len(self._parts) > _MOST_PARTS:
                self.sketch()

    def sketch(self) -> Sketch | None:
        """The sum; None while there is nothing to add."""
        whole = merged(self._parts)
        if whole is not None:
            self._parts = [whole]
        return whole
