"""Two ways to wait that asyncio spells out in several lines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine
from typing import Any


async def first(*waits: Awaitable[object]) -> None:
    """Come back when one of them has happened. A future that is waited for goes on; a coroutine is cancelled."""
    tasks = [asyncio.ensure_future(asyncio.shield(wait) if asyncio.isfuture(wait) else wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def within(wait: Coroutine[Any, Any, object], most_s: float) -> None:
    """Come back when it has happened, or when the time is over. Whoever is cancelled meanwhile is."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await wait
