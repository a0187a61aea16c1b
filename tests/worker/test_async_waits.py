"""Waiting, and what ends it."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.worker.async_waits import first, within


async def test_a_wait_is_over_when_it_has_happened_or_when_the_time_is() -> None:
    happened = asyncio.Event()
    await within(happened.wait(), 0.001)
    happened.set()
    await within(happened.wait(), 3600)


@pytest.mark.parametrize("turns", range(4))
async def test_whoever_is_cancelled_as_the_wait_ends_is_cancelled(turns: int) -> None:
    happened = asyncio.Event()
    waiting = asyncio.create_task(within(happened.wait(), 3600))
    await asyncio.sleep(0)

    happened.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    over = not waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled() != over


async def test_the_first_of_several_ends_the_wait_and_futures_go_on() -> None:
    future = asyncio.get_running_loop().create_future()
    await first(future, asyncio.sleep(0))
    assert not future.done()
    future.set_result(None)
