"""Wake subscriptions between the tasks and threads of one process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Self


class WakeHub:
    """All subscriptions of one store, by topic."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._by_topic: dict[str, dict[MemoryWake, None]] = {}

    @property
    def awaited(self) -> bool:
        """Whether there is any subscription."""
        with self.lock:
            return bool(self._by_topic)

    def subscribe(self, topics: Sequence[str]) -> MemoryWake:
        subscription = MemoryWake(self, tuple(topics))
        with self.lock:
            for topic in topics:
                self._by_topic.setdefault(topic, {})[subscription] = None
        return subscription

    def notify(self, topics: Mapping[str, int]) -> None:
        """Wake all subscribers of each topic; for a queue, no more than rows became ready."""
        with self.lock:
            for topic, n in topics.items():
                self._notify(topic, n)

    def leave(self, subscription: MemoryWake) -> None:
        with self.lock:
            for topic in subscription.topics:
                subscribers = self._by_topic.get(topic, {})
                subscribers.pop(subscription, None)
                if not subscribers:
                    self._by_topic.pop(topic, None)
            if subscription.woken_by is not None:
                # it was chosen for a row and leaves without a claim: the next subscriber gets the wake
                self._notify(subscription.woken_by, 1)
                subscription.woken_by = None

    def _notify(self, topic: str, n: int) -> None:
        subscribers = self._by_topic.get(topic)
        if not subscribers:
            return
        chosen = [s for s in subscribers if s.woken_by is None]
        if topic.startswith("queue:"):
            # waiting subscribers before busy ones, which would claim only later
            chosen = sorted(chosen, key=lambda s: not s.waiting)[:n]
        for subscription in chosen:
            subscribers[subscription] = subscribers.pop(subscription)
            subscription.ring(topic)


class MemoryWake:
    """One subscriber of some topics; see `port.Wake`."""

    def __init__(self, hub: WakeHub, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.woken_by: str | None = None
        self._hub = hub
        self._waiter: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> bool:
        return self._waiter is not None

    def ring(self, topic: str) -> None:
        """Called under the hub's lock, from any thread."""
        self.woken_by = topic
        if self._waiter is not None:
            with contextlib.suppress(RuntimeError):  # its loop was closed
                self._waiter.get_loop().call_soon_threadsafe(_finish, self._waiter)

    async def wait(self, timeout_s: float) -> bool:
        with self._hub.lock:
            if self.woken_by is not None:
                self.woken_by = None
                return True
            waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((waiter,), timeout=timeout_s)
        finally:
            with self._hub.lock:
                self._waiter = None
        with self._hub.lock:
            woken, self.woken_by = self.woken_by is not None, None
        return woken

    async def close(self) -> None:
        self._hub.leave(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
