"""Two ways to wait that take several lines with asyncio alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine
from typing import Any


async def first(*waits: Awaitable[object]) -> None:
    """Wait for the first of them. The other futures go on; the other coroutines are cancelled."""
    tasks = [asyncio.ensure_future(asyncio.shield(wait) if asyncio.isfuture(wait) else wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def within(wait: Coroutine[Any, Any, object], most_s: float) -> None:
    """Wait for it, but not longer than this. A cancel of the caller is passed on."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await wait
