"""A versioned store that a test can watch, stop and come between, and registries on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mainstay.errors import StoreUnavailable
from mainstay.stores.registry import JobRegistry
from mainstay.stores.versioned import Versioned, VersionedStore
from mainstay.testing import VirtualClock
from tests.conformance.world import World

Hook = Callable[[str, str], Awaitable[None]]


class Between:
    """One process's way to a store that outlives it. `before` and `after` are called with (call, key)."""

    def __init__(self, store: VersionedStore) -> None:
        self.store = store
        self.calls: list[tuple[str, str]] = []
        self.away = False
        self.before: Hook | None = None
        self.after: Hook | None = None

    @property
    def place(self) -> str:
        return self.store.place

    def made(self, call: str, prefix: str = "") -> int:
        """How many such calls there were."""
        return sum(name == call and key.startswith(prefix) for name, key in self.calls)

    async def get(self, key: str) -> Versioned | None:
        return await self._call("get", key, lambda: self.store.get(key))

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        return await self._call("put", key, lambda: self.store.put(key, value, version))

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        return await self._call("create", key, lambda: self.store.create_if_absent(key, value))

    async def delete(self, key: str, version: str) -> bool:
        return await self._call("delete", key, lambda: self.store.delete(key, version))

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        return await self._call("list", prefix, lambda: self.store.list_keys(prefix, after=after, limit=limit))

    async def close(self) -> None:
        """Only this way to it ends."""

    async def _call(self, call: str, key: str, do: Callable[[], Awaitable[Any]]) -> Any:
        if self.away:
            raise StoreUnavailable("it does not answer")
        self.calls.append((call, key))
        if self.before is not None:
            await self.before(call, key)
        answer = await do()
        if self.after is not None:
            await self.after(call, key)
        return answer


async def opened(way: Between, clock: VirtualClock, **more: Any) -> World:
    """A registry of a process of its own."""

    async def open_way() -> VersionedStore:
        return way

    return World(await JobRegistry.open(open_way, clock=clock, **more), clock)
