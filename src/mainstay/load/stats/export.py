"""Histograms for other tools: HdrHistogram's log (format V2, compressed) and OTLP's exponential histogram.

Both have their own buckets, so the middles of ours are written: these are within 0.4 % of the values, and each function
documents the error that its format adds. Minimum, maximum, count and sum stay exact where the format has a field.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from .histogram import Histogram

_NS = 1e9
_DIGITS = 3
#: for 3 digits: 2048 sub-buckets, of which all buckets but the first use the upper half
_MAGNITUDE = 10
_HALF = 1 << _MAGNITUDE
#: an hour in ns; readers allocate memory for this range
_HIGHEST = 3_600_000_000_000

_HDR_COOKIE = 0x1C849303 | 0x10
_HDR_COMPRESSED_COOKIE = 0x1C849304 | 0x10

#: 128 buckets from a number to twice that, as many as ours
_SCALE = 7


def hdr_blob(histogram: Histogram) -> str:
    """A histogram of seconds for HdrHistogram's tools: V2, compressed, base64. Its values are nanoseconds.

    HdrHistogram with 3 digits adds at most 0.1 %: values are within 0.5 %, maximum and minimum within 0.1 %. Negative
    values count as zero.
    """
    counts: dict[int, int] = {}
    for value, n in _points(histogram):
        at = _hdr_index(max(0, round(value * _NS)))
        counts[at] = counts.get(at, 0) + n
    packed = b"".join(_hdr_words(counts))
    highest = max(_HIGHEST, round(max(histogram.high, 0.0) * _NS)) if histogram.count else _HIGHEST
    head = struct.pack(">iiiiqqd", _HDR_COOKIE, len(packed), 0, _DIGITS, 1, highest, 1.0)
    compressed = zlib.compress(head + packed)
    return base64.b64encode(struct.pack(">ii", _HDR_COMPRESSED_COOKIE, len(compressed)) + compressed).decode()


def hdr_log(started_ms: int, intervals: Iterable[tuple[float, float, str, Histogram]]) -> str:
    """A log of intervals: start and length in seconds, tag (the name of a step, for example), times.

    The maximum of an interval is in milliseconds, as HdrHistogram's own tools write it for nanoseconds.
    """
    started = datetime.fromtimestamp(started_ms / 1000, UTC)
    lines = [
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {started_ms / 1000:.3f} (seconds since epoch), {started:%a %b %d %H:%M:%S UTC %Y}]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for at_s, width_s, tag, histogram in intervals:
        # the format cannot quote these
        safe = "".join("_" if char in ", \n\r" else char for char in tag)
        prefix = f"Tag={safe}," if safe else ""
        most = histogram.high * 1000 if histogram.count else 0.0
        lines.append(f"{prefix}{at_s:.3f},{width_s:.3f},{most:.3f},{hdr_blob(histogram)}")
    return "\n".join(lines) + "\n"


def otlp_point(histogram: Histogram, *, most: int = 2048) -> dict[str, Any]:
    """The values of an OTLP `ExponentialHistogramDataPoint`, without times and attributes.

    `most` limits the buckets on either side of zero. Scale 7 is enough for a range of 1:65,536 and adds 0.3 %: values
    are within 0.7 %. A wider range, or a smaller `most`, reduces the scale; each step doubles the added error.

    >>> from array import array
    >>> measured = Histogram()
    >>> measured.add(array("d", [0.0, 1.5, 1.5]))
    >>> otlp_point(measured)["positive"]
    {'offset': 74, 'bucket_counts': [2]}
    """
    zero, positive, negative = 0, dict[int, int](), dict[int, int]()
    for value, n in _points(histogram):
        if value == 0:
            zero += n
            continue
        side = positive if value > 0 else negative
        at = math.ceil(math.log2(abs(value)) * 2**_SCALE) - 1
        side[at] = side.get(at, 0) + n
    scale = _SCALE
    while any(side and max(side) - min(side) >= most for side in (positive, negative)):
        scale -= 1
        positive, negative = _halved(positive), _halved(negative)
    point: dict[str, Any] = {
        "count": histogram.count,
        "sum": histogram.total,
        "scale": scale,
        "zero_count": zero,
        "positive": _dense(positive),
        "negative": _dense(negative),
    }
    if histogram.count:
        point |= {"min": histogram.low, "max": histogram.high}
    return point


def _points(histogram: Histogram) -> list[tuple[float, int]]:
    """Values and counts: the middle of each bucket, but the exact minimum and maximum."""
    points = [(min(max((start + end) / 2, histogram.low), histogram.high), n) for start, end, n in histogram.buckets()]
    for at, exact in ((0, histogram.low), (-1, histogram.high)):
        if points and points[at][1] > 1:
            points[at] = (points[at][0], points[at][1] - 1)
            points.append((exact, 1)) if at else points.insert(0, (exact, 1))
        elif points:
            points[at] = (exact, points[at][1])
    return points


def _hdr_index(value: int) -> int:
    bucket = (value | (2 * _HALF - 1)).bit_length() - (_MAGNITUDE + 1)
    return ((bucket + 1) << _MAGNITUDE) + (value >> bucket) - _HALF


def _hdr_words(counts: dict[int, int]) -> Iterable[bytes]:
    """Counts in order; a run of empty buckets is its negative length."""
    upto = 0
    for at in sorted(counts):
        if at > upto:
            yield _zigzag(upto - at if at - upto > 1 else 0)
        yield _zigzag(counts[at])
        upto = at + 1


def _zigzag(number: int) -> bytes:
    """ZigZag LEB128; no count here is long enough for the special ninth byte."""
    left = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _halved(counts: dict[int, int]) -> dict[int, int]:
    halved: dict[int, int] = {}
    for at, n in counts.items():
        halved[at >> 1] = halved.get(at >> 1, 0) + n
    return halved


def _dense(counts: dict[int, int]) -> dict[str, Any]:
    if not counts:
        return {"offset": 0, "bucket_counts": []}
    first = min(counts)
    return {"offset": first, "bucket_counts": [counts.get(at, 0) for at in range(first, max(counts) + 1)]}
