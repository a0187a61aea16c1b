"""Hearing of what other processes commit: a look at the log now and then, while somebody waits for anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ...errors import MainstayError
from ..memory.wake import MemoryWake, WakeHub
from ..store_loop import StoreLoop

_SLOWER = 1.5
_SLOWEST = 5.0
"""times the interval, when nothing comes"""


class Poller:
    """Subscriptions of this process. What is committed here wakes at once; the rest when it is seen."""

    def __init__(self, hub: WakeHub, home: StoreLoop, look: Callable[[], Awaitable[bool]], *, every_s: float) -> None:
        self._hub = hub
        self._home = home
        self._look = look
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def subscribe(self, topics: Sequence[str]) -> MemoryWake:
        """From any thread."""
        found = self._hub.subscribe(topics)
        self._home.spawn(self._begin)
        return found

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
                    news = False  # whoever needs the store says so himself
                wait_s = self._every_s if news else min(wait_s * _SLOWER, self._every_s * _SLOWEST)
        finally:
            self._task = None
