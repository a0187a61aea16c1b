"""Polling for commits of other processes, while there are subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ...errors import MainstayError
from ..memory.wake import MemoryWake, WakeHub
from ..store_loop import StoreLoop

_SLOWER = 1.5
_SLOWEST = 5.0
"""times the interval, when there is no news"""


class Poller:
    """Subscriptions of this process. Commits of this process wake at once; those of others when they are read."""

    def __init__(self, hub: WakeHub, home: StoreLoop, look: Callable[[], Awaitable[bool]], *, every_s: float) -> None:
        self._hub = hub
        self._home = home
        self._look = look
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def subscribe(self, topics: Sequence[str]) -> MemoryWake:
        """From any thread."""
        subscription = self._hub.subscribe(topics)
        self._home.spawn(self._begin)
        return subscription

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _begin(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._poll(), name="mainstay registry poll")

    async def _poll(self) -> None:
        wait_s = self._every_s
        try:
            while self._hub.awaited:
                await asyncio.sleep(wait_s)
                try:
                    news = await self._look()
                except MainstayError:
                    news = False  # calls of the store report the error
                wait_s = self._every_s if news else min(wait_s * _SLOWER, self._every_s * _SLOWEST)
        finally:
            self._task = None
