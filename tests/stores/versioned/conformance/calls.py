"""The calls that take a key, by name, and a value to begin with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mainstay.stores.versioned import VersionedStore

KEY = "jobs/v1/a.json"
CALLS: dict[str, Callable[[VersionedStore, Any], Awaitable[object]]] = {
    "get": lambda store, key: store.get(key),
    "put": lambda store, key: store.put(key, b"x", "1"),
    "create_if_absent": lambda store, key: store.create_if_absent(key, b"x"),
    "delete": lambda store, key: store.delete(key, "1"),
}


async def made(store: VersionedStore, key: str = KEY, value: bytes = b"first") -> str:
    version = await store.create_if_absent(key, value)
    assert version is not None
    return version
