"""Many calls, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

A = TypeVar("A")


async def for_each(items: Iterable[A], work: Callable[[A], Awaitable[None]], *, at_once: int) -> None:
    """Call `work` for each item. The first error cancels what runs, and is raised."""
    left = iter(items)

    async def run() -> None:
        for item in left:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(run())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


__all__ = ["for_each"]
