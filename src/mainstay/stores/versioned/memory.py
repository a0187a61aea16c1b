"""Versioned values in a dictionary: for tests, and for data that may be lost."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

from ...errors import StoreClosed
from ...storage import check_key, check_options
from .input_check import check_listing, check_value, new_version
from .port import Versioned, VersionedStore


class MemoryVersioned:
    """Lives as long as this object; no other process sees it. Open it with `open_versioned("memory:")`."""

    def __init__(self, *, versions: Callable[[], str] = new_version) -> None:
        self._new_version = versions
        self._values: dict[str, Versioned] = {}
        self._lock = threading.Lock()  # it may be used from several threads, each with its own loop
        self._closed = False

    @property
    def place(self) -> str:
        return "memory:"

    async def get(self, key: str) -> Versioned | None:
        check_key(key)
        self._check_open()
        return self._values.get(key)

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        check_key(key)
        check_value(value)
        self._check_open()
        with self._lock:
            found = self._values.get(key)
            if found is None or found.version != version:
                return None
            return self._write(key, value)

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        check_key(key)
        check_value(value)
        self._check_open()
        with self._lock:
            return None if key in self._values else self._write(key, value)

    async def delete(self, key: str, version: str) -> bool:
        check_key(key)
        self._check_open()
        with self._lock:
            found = self._values.get(key)
            if found is None or found.version != version:
                return False
            del self._values[key]
            return True

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_listing(prefix, after, limit)
        self._check_open()
        with self._lock:
            return heapq.nsmallest(limit, (key for key in self._values if key > after and key.startswith(prefix)))

    async def close(self) -> None:
        self._closed = True

    def _write(self, key: str, value: bytes) -> str:
        version = self._new_version()
        self._values[key] = Versioned(value, version)
        return version

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("memory: was closed; open it again")


async def open_memory(url: str, *, options: dict[str, str]) -> VersionedStore:  # noqa: ARG001 - as all adapters
    check_options(options)
    return MemoryVersioned()
