"""A timer is never early, and the last time that was set counts."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from mainstay.load.engine.timer import Timer


@pytest.mark.parametrize("platform", [sys.platform, "other"])
async def test_it_rings_once_and_never_too_early(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    rung: list[float] = []
    done = asyncio.Event()

    def ring() -> None:
        rung.append(time.perf_counter())
        done.set()

    timer = Timer(asyncio.get_running_loop(), ring)
    try:
        timer.set(time.perf_counter() + 60)
        due = time.perf_counter() + 0.005
        timer.set(due)
        await asyncio.wait_for(done.wait(), 60)
        done.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(done.wait(), 0.02)
    finally:
        timer.close()

    assert len(rung) == 1
    assert rung[0] >= due - 0.001


async def test_a_time_that_has_passed_rings_at_once() -> None:
    done = asyncio.Event()
    timer = Timer(asyncio.get_running_loop(), done.set)
    try:
        timer.set(time.perf_counter() - 1)
        await asyncio.wait_for(done.wait(), 60)
        done.clear()
        timer.set(0.0)
        await asyncio.wait_for(done.wait(), 60)
    finally:
        timer.close()
    timer.close()
