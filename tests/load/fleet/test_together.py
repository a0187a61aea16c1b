"""How many windows a slice sends at once: few and wide ones to a leader that has much to do."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mainstay.bus import LEVELS as NAMES, Admission
from mainstay.load.fleet.together import STEPS, buckets_together
from mainstay.testing import BusFaults
from tests.load.fleet.fleet_trials import FleetTrial, with_fleet

LEVELS = st.integers(0, 3)
SHARES = st.floats(0, 1)
SLICES = st.integers(1, 2_000)


@pytest.mark.parametrize(
    ("level", "queue_share", "slices", "buckets"),
    [(0, 0.0, 1, 2), (0, 0.69, 99, 2), (1, 0.0, 1, 5), (0, 0.7, 1, 5), (0, 0.0, 100, 5), (2, 0.0, 1, 10),
     (0, 0.85, 1, 10), (0, 0.0, 400, 10), (3, 0.0, 1, 20), (0, 0.95, 1, 20), (0, 0.0, 2_000, 10)],
)  # fmt: skip
def test_more_buckets_go_together_the_more_there_is_to_do(
    level: int, queue_share: float, slices: int, buckets: int
) -> None:
    assert buckets_together(level=level, queue_share=queue_share, slices=slices) == buckets


@given(LEVELS, LEVELS, SHARES, SHARES, SLICES, SLICES)
def test_more_load_never_means_more_messages(
    level: int, other: int, share: float, other_share: float, slices: int, other_slices: int
) -> None:
    less = buckets_together(
        level=min(level, other), queue_share=min(share, other_share), slices=min(slices, other_slices)
    )
    more = buckets_together(
        level=max(level, other), queue_share=max(share, other_share), slices=max(slices, other_slices)
    )

    assert less <= more
    assert {less, more} <= set(STEPS)


@pytest.mark.parametrize("seed", range(3))
def test_wide_windows_of_slices_are_merged_exactly_whenever_their_width_changes(tmp_path: Path, seed: int) -> None:
    async def test(trial: FleetTrial) -> None:
        chance = random.Random(seed)
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()
        levels = [3, *(chance.randrange(4) for _ in range(5)), 0]
        for level in levels:
            trial.fleet.leaders[0]._admission = Admission(level=lambda level=level: NAMES[level])
            await asyncio.sleep(chance.uniform(2, 6))

        summary = await running

        assert (summary.ended, summary.requests) == ("finished", trial.fleet.sent)
        assert summary.trust.reasons == []
        windows = trial.output.windows
        assert sum(window.iterations for window in windows) == trial.fleet.sent
        assert all(before.bucket + before.width <= after.bucket for before, after in pairwise(windows))
        widths = [window.width for window in windows]
        assert max(widths) == STEPS[3]
        assert widths[-20:] == [1] * 20

    faults = BusFaults(latency_s=0.01, jitter_s=0.05, lost=0.1, duplicated=0.1, reordered=0.1)
    with_fleet(test, tmp_path, [2, 1, 1], seed=seed, fleet={"faults": faults}, rate="60/s", duration="60s")


def test_the_leader_of_many_slices_takes_fewer_windows(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        taken = 0
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()
        trial.fleet.leaders[0]._admission = Admission(level=lambda: "stressed")
        await asyncio.sleep(2)
        link = trial.fleet.leaders[0]._slices[0].link
        assert link is not None
        take = link.windows.take

        def counted(number: int, *rest: object) -> bool:
            nonlocal taken
            taken += 1
            return take(number, *rest)  # type: ignore[arg-type] # as the link calls it

        link.windows.take = counted  # type: ignore[method-assign] # to count the calls
        await asyncio.sleep(10)
        assert 9 <= taken <= 11

        assert (await running).requests == trial.fleet.sent

    with_fleet(test, tmp_path, [1], fleet={"faults": BusFaults(latency_s=0.005)}, rate="10/s", duration="20s")
