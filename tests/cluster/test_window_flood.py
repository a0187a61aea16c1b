"""A manager on a real bus, which windows of a run flood. How soon it answers is measured in `bench/window_flood.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.window_flood import FloodedManager


@pytest.mark.slow
@pytest.mark.parametrize("rate", [10_000, 1_000_000])
async def test_a_flood_of_windows_holds_up_neither_beats_nor_a_cancel(tmp_path: Path, rate: int) -> None:
    """Also if more arrive than the manager can read, or the server keeps for it."""
    async with asyncio.timeout(120), FloodedManager.start(tmp_path) as manager:
        jobs = await manager.waiting(20)
        async with manager.flood(rate):
            taken = (await manager.counts()).counts[0]
            for job in jobs:
                await manager.beat()
                await manager.cancel(job)
            while (await manager.counts()).counts[0] <= taken:  # it was a flood, and is one still
                await manager.beat()
