"""Histograms for other tools. The readers here are written from the formats' own descriptions."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mainstay.load.stats.export import hdr_blob, hdr_log, otlp_point
from mainstay.load.stats.histogram import Histogram

times = st.lists(st.floats(1e-6, 3_000.0), min_size=1, max_size=60)


def of(values: list[float]) -> Histogram:
    made = Histogram()
    made.add(array("d", values))
    return made


def hdr_counts(blob: str) -> list[tuple[float, int]]:
    """The middle of each HdrHistogram bucket in seconds, and how many are in it."""
    raw = base64.b64decode(blob, validate=True)
    cookie, length = struct.unpack(">ii", raw[:8])
    assert (cookie, length) == (0x1C849314, len(raw) - 8)
    payload = zlib.decompress(raw[8:])
    cookie, length, offset, digits, lowest, highest, ratio = struct.unpack(">iiiiqqd", payload[:40])
    assert (cookie, length, offset, digits, lowest, ratio) == (0x1C849313, len(payload) - 40, 0, 3, 1, 1.0)
    found, at = [], 0
    for word in zigzags(payload[40:]):
        if word < 0:
            at -= word
            continue
        if word:
            bucket, sub = (at >> 10) - 1, (at & 1023) + 1024
            if bucket < 0:
                bucket, sub = 0, sub - 1024
            assert sub << bucket <= highest
            found.append((((sub << bucket) + ((1 << bucket) - 1) / 2) / 1e9, word))
        at += 1
    return found


def zigzags(raw: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield (value >> 1) ^ -(value & 1)
            value = shift = 0
    assert shift == 0


def ranked(counts: list[tuple[float, int]], rank: int) -> float:
    for value, n in counts:
        rank -= n
        if rank <= 0:
            return value
    raise AssertionError("beyond the last")


@settings(max_examples=50)
@given(times)
def test_hdrhistogram_reads_each_value_within_half_a_percent(values: list[float]) -> None:
    counts = hdr_counts(hdr_blob(of(values)))
    for rank, exact in enumerate(sorted(values), 1):
        # a nanosecond, because that is its unit
        assert ranked(counts, rank) == pytest.approx(exact, rel=0.005, abs=1e-9)
    assert counts[-1][0] == pytest.approx(max(values), rel=0.001)
    assert counts[0][0] == pytest.approx(min(values), rel=0.001, abs=1e-9)


def test_a_known_histogram_has_the_bytes_that_other_writers_give_it() -> None:
    # values 1, 2 and 1,000,000 ns; counts at 1, 2, and ((9 + 1) << 10) + (1_000_000 >> 9) - 1024 = 11169
    raw = base64.b64decode(hdr_blob(of([1e-9, 2e-9, 2e-9, 1e-3])))
    words = list(zigzags(zlib.decompress(raw[8:])[40:]))
    assert words == [0, 1, 2, -(11169 - 3), 1]


def test_what_is_below_zero_counts_as_zero() -> None:
    assert hdr_counts(hdr_blob(of([-1.0, 0.0, 1.0])))[0] == (0.0, 2)


def test_nothing_measured_is_an_empty_histogram() -> None:
    assert hdr_counts(hdr_blob(Histogram())) == []
    assert otlp_point(Histogram()) == {
        "count": 0,
        "sum": 0.0,
        "scale": 7,
        "zero_count": 0,
        "positive": {"offset": 0, "bucket_counts": []},
        "negative": {"offset": 0, "bucket_counts": []},
    }


def test_a_log_names_its_intervals_and_their_steps() -> None:
    first, second = of([0.010]), of([0.020, 0.030])
    lines = hdr_log(1_700_000_000_000, [(0.0, 1.0, "Shop.browse", first), (1.0, 1.0, "a, b", second)]).splitlines()
    assert lines[0] == "#[Histogram log format version 1.3]"
    assert lines[1] == "#[StartTime: 1700000000.000 (seconds since epoch), Tue Nov 14 22:13:20 UTC 2023]"
    assert lines[3] == f"Tag=Shop.browse,0.000,1.000,10.000,{hdr_blob(first)}"
    assert re.match(r"Tag=a__b,1\.000,1\.000,30\.000,\S+\Z", lines[4])


def otlp_counts(point: dict[str, Any]) -> list[tuple[float, int]]:
    """The middle of each bucket (least, largest] of OTLP, rising, and how many are in it."""
    base = 2 ** (2 ** -point["scale"])
    sides: dict[str, list[tuple[float, int]]] = {}
    for side in ("positive", "negative"):
        offset, counts = point[side]["offset"], point[side]["bucket_counts"]
        sides[side] = [(base ** (offset + at) * (1 + base) / 2, n) for at, n in enumerate(counts) if n]
    mirrored = [(-value, n) for value, n in reversed(sides["negative"])]
    return mirrored + ([(0.0, point["zero_count"])] if point["zero_count"] else []) + sides["positive"]


@settings(max_examples=50)
@given(st.lists(st.floats(0.001, 60.0) | st.floats(-60.0, -0.001) | st.just(0.0), min_size=1, max_size=60))
def test_otlp_reads_each_value_within_seven_thousandths(values: list[float]) -> None:
    point = otlp_point(of(values))
    assert (point["count"], point["min"], point["max"], point["scale"]) == (len(values), min(values), max(values), 7)
    assert point["sum"] == pytest.approx(math.fsum(values), abs=1e-9)
    counts = otlp_counts(point)
    assert sum(n for _, n in counts) == len(values)
    for rank, exact in enumerate(sorted(values), 1):
        assert ranked(counts, rank) == pytest.approx(exact, rel=0.007)


def test_otlp_takes_a_smaller_scale_for_fewer_buckets() -> None:
    values = np.random.default_rng(3).lognormal(-4, 1, 2_000).tolist()
    point = otlp_point(of(values), most=160)
    assert len(point["positive"]["bucket_counts"]) <= 160
    assert point["scale"] == 3
    counts = otlp_counts(point)
    # half of a bucket of that scale, beside our own 0.4 %
    allowed = 0.004 + (2 ** (2**-3) - 1) / 2
    for rank in (1, 1_000, 1_980, 2_000):
        assert ranked(counts, rank) == pytest.approx(sorted(values)[rank - 1], rel=allowed)
