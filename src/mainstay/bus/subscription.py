"""The bounded queue between the bus and one subscriber. All adapters use it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")

#: for how long a reader that never has to wait keeps the event loop
_TURN_S = 0.001


class Subscription(Generic[T]):
    """What arrives for one subscriber: an async iterator that ends when the subscription or its bus is closed.

    The queue holds `limit` items. When one more arrives, the oldest is dropped and counted: a slow subscriber never
    slows a sender down, and the newest information wins. Several tasks may iterate; each item goes to one of them.

    A reader that always finds an item still gives the event loop back each millisecond, so a flood in one
    subscription does not hold up the others.
    """

    def __init__(
        self, limit: int, unsubscribe: Callable[[], Awaitable[None]], on_drop: Callable[[], None] = lambda: None
    ) -> None:
        """`on_drop` is called for each item that is dropped."""
        self._items: deque[T] = deque(maxlen=limit)
        self._arrived = asyncio.Event()
        self._unsubscribe = unsubscribe
        self._ended = False
        self._on_drop = on_drop
        self._turn_ends_s = 0.0
        #: how many items were dropped because the queue was full
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """How many items have arrived and were not read yet."""
        return len(self._items)

    def __aiter__(self) -> Subscription[T]:
        return self

    async def __anext__(self) -> T:
        loop = asyncio.get_running_loop()
        if self._items and loop.time() >= self._turn_ends_s:
            await asyncio.sleep(0)
            self._turn_ends_s = loop.time() + _TURN_S
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
            self._turn_ends_s = loop.time() + _TURN_S
        return self._items.popleft()

    async def __aenter__(self) -> Subscription[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Receive nothing more. Items that were not read are discarded. A second call does nothing."""
        if not self._ended:
            self.end()
            await self._unsubscribe()

    def put(self, item: T) -> None:
        """Add an item. For adapters; it does not wait."""
        if self._ended:
            return
        if len(self._items) == self._items.maxlen:
            self.dropped += 1
            self._on_drop()
        self._items.append(item)
        self._arrived.set()

    def end(self) -> None:
        """End the iteration. For adapters, when the bus is closed."""
        self._ended = True
        self._items.clear()
        self._arrived.set()


__all__ = ["Subscription"]
