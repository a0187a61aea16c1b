"""The end of a store: it happens once, from any loop or thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future


class Shutdown:
    """The first caller ends the store; all others wait for the same end.

    >>> ended = []
    >>> async def end_twice():
    ...     async def release():
    ...         ended.append("once")
    ...     ending = Shutdown()
    ...     await asyncio.gather(ending.reach(release), ending.reach(release))
    ...     return ending.begun
    >>> asyncio.run(end_twice()), ended
    (True, ['once'])
    """

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._over: Future[None] | None = None

    @property
    def begun(self) -> bool:
        return self._over is not None

    async def reach(self, release: Callable[[], Awaitable[None]]) -> None:
        with self._door:
            first = self._over is None
            over = self._over = self._over or Future()
        if first:
            over.set_running_or_notify_cancel()  # so that a waiting caller that is cancelled does not cancel it
            # a caller that is cancelled must not leave it half closed
            await asyncio.shield(asyncio.ensure_future(self._go(release, over)))
        else:
            await asyncio.wrap_future(over)

    async def _go(self, release: Callable[[], Awaitable[None]], over: Future[None]) -> None:
        try:
            await release()
        finally:
            over.set_result(None)
