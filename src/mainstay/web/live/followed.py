"""The common part of followed jobs and followed lists: one reader of the store for all followers of the same thing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
F = TypeVar("F", bound="Followed")


class Followed:
    """Something that clients follow, as it was last read."""

    def __init__(self) -> None:
        self.error = ""
        """why the last read failed; empty: it did not"""
        self.changed = asyncio.Event()
        """set, and replaced by another event, at each change"""
        self.followers = 0

    def fail(self, error: str) -> None:
        """Take note that a read failed."""
        if error != self.error:
            self.error = error
            self.notify()

    def notify(self) -> None:
        """Wake the followers."""
        self.changed.set()
        self.changed = asyncio.Event()


class FollowedSet(Generic[K, F]):
    """All that is followed in one store. The first follower starts a task that reads; the last one ends it, some time
    after it has left."""

    def __init__(self, *, linger_s: float = 0.0) -> None:
        self._linger_s = linger_s
        self._followed: dict[K, F] = {}
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._leaving: dict[K, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._followed)

    @contextlib.asynccontextmanager
    async def _following(
        self, key: K, make: Callable[[], F], start: Callable[[F], asyncio.Task[None]]
    ) -> AsyncIterator[F]:
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = make()
            self._tasks[key] = start(followed)
        followed.followers += 1
        await self._cancel(self._leaving.pop(key, None))
        try:
            yield followed
        finally:
            followed.followers -= 1
            if not followed.followers and self._linger_s:
                self._leaving[key] = asyncio.create_task(self._forget_later(key))
            elif not followed.followers:
                await self._forget(key)

    async def close(self) -> None:
        """End all tasks."""
        leaving, self._leaving = self._leaving, {}
        await self._cancel(*leaving.values())
        for key in list(self._followed):
            await self._forget(key)

    async def _forget_later(self, key: K) -> None:
        await asyncio.sleep(self._linger_s)
        self._leaving.pop(key, None)
        await self._forget(key)

    async def _forget(self, key: K) -> None:
        self._followed.pop(key, None)
        await self._cancel(self._tasks.pop(key, None))

    async def _cancel(self, *tasks: asyncio.Task[None] | None) -> None:
        ended = [task for task in tasks if task is not None]
        for task in ended:
            task.cancel()
        if ended:
            await asyncio.wait(ended)


__all__ = ["Followed", "FollowedSet"]
