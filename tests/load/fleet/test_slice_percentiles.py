"""Percentiles of a run on several machines are those of one process that made the same calls."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import numpy as np
import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.clock import SystemClock
from mainstay.load.fleet.messages import SliceWindow, decode_windows, encode_windows
from mainstay.load.fleet.settings import FleetMember, FleetSettings
from mainstay.load.fleet.slice_link import SliceLink
from mainstay.load.fleet.slice_merger import SliceMerger
from mainstay.load.stats.model import Summary, Window
from tests.load.fleet.recorded_samples import ERROR, QUANTILES, Samples, percentiles, recorded, summary
from tests.load.stats.made import FIRST

TENTHS, A_TENTH = 20, 250


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Three shapes at once, over four orders of magnitude: a percentile of a part is not that of the whole."""
    rng = np.random.default_rng(17)
    fast, slow, stuck = (rng.lognormal(np.log(middle), 0.5, (TENTHS, A_TENTH)) for middle in (0.001, 0.05, 3.0))
    kind = rng.random((TENTHS, A_TENTH))
    drawn: Samples = np.where(kind < 0.7, fast, np.where(kind < 0.98, slow, stuck)).tolist()
    return drawn


@pytest.fixture(scope="module")
def of_one_process(samples: Samples) -> Summary:
    return summary(recorded(samples))


def through_a_fleet(parts: list[Samples], rng: random.Random) -> list[Window]:
    """What a leader passes on, from a bus that delivers in any order, some windows late and some of them twice."""
    now_s, merged = 0.0, list[Window]()
    merger = SliceMerger(len(parts), merged.append, hold_s=0.25, now=lambda: now_s)
    merger.open(range(len(parts)))
    links = [_link(number, lambda window, number=number: merger.add(number, window)) for number in range(len(parts))]
    sent = [
        (number, SliceWindow(token=1, go=1, number=at, window=window))
        for number, samples in enumerate(parts)
        for at, window in enumerate(recorded(samples))
    ]
    delivered = sent + rng.sample(sent, len(sent) // 2)
    rng.shuffle(delivered)
    for number, window in delivered:
        [received] = decode_windows(encode_windows(deque([window])))
        links[number].take(received)
        now_s += rng.choice([0.0, 0.01, 0.3])
    for number, link in enumerate(links):
        assert (link.windows.count, link.windows.repeated) == (
            TENTHS,
            sum(to == number for to, _ in delivered) - TENTHS,
        )
        merger.close(number)
    return merged


def _link(number: int, on_window: Callable[[Window], None]) -> SliceLink:
    async def leads() -> bool:
        return True

    link = SliceLink(
        MemoryBusNetwork().client("leader"),
        FleetMember(node=f"n{number}", processes=1),
        job="job-1",
        number=number,
        epoch=1,
        settings=FleetSettings(),
        clock=SystemClock(),
        steady=lambda: 0.0,
        leads=leads,
        on_window=on_window,
        on_change=lambda: None,
    )
    link.open(1, wall_s=FIRST / 10, at_s=0.0)
    return link


@pytest.mark.parametrize("slices", range(1, 9))
def test_percentiles_of_any_number_of_slices_are_those_of_one_process(
    slices: int, samples: Samples, of_one_process: Summary
) -> None:
    rng = random.Random(slices)
    # the calls are not dealt evenly: some machines are slower than others
    owners = [[min(int(rng.expovariate(1) * slices / 3), slices - 1) for _ in times] for times in samples]
    parts: list[Samples] = [
        [
            [took for took, owner in zip(times, owned, strict=True) if owner == number]
            for times, owned in zip(samples, owners, strict=True)
        ]
        for number in range(slices)
    ]

    found = summary(through_a_fleet(parts, rng))

    truth = [took for times in samples for took in times]
    assert found.requests == of_one_process.requests == len(truth)
    assert percentiles(found.service) == percentiles(of_one_process.service)
    assert percentiles(found.steps[0].service) == percentiles(of_one_process.service)
    assert percentiles(found.service) == pytest.approx(
        {name: float(np.percentile(truth, q, method="inverted_cdf")) for name, q in QUANTILES.items()}, rel=ERROR
    )
    assert found.distribution == of_one_process.distribution


def test_a_mean_of_the_percentiles_of_slices_would_be_wrong(samples: Samples, of_one_process: Summary) -> None:
    fast = [[took for took in times if took < 0.01] for times in samples]
    slow = [[took for took in times if took >= 0.01] for times in samples]

    p95s = [percentiles(summary(recorded(part)).service)["p95"] for part in (fast, slow)]
    found = percentiles(summary(through_a_fleet([fast, slow], random.Random(0))).service)

    assert found == percentiles(of_one_process.service)
    assert abs(sum(p95s) / 2 / found["p95"] - 1) > 10 * ERROR
