"""Threads for calls that block, so that the caller's event loop does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import StoreClosed

T = TypeVar("T")


class Threads:
    """The threads of one store. `close` waits for every call that was accepted."""

    def __init__(self, n: int, *, place: str) -> None:
        self._place = place
        self._pool = ThreadPoolExecutor(n, thread_name_prefix="mainstay-storage")
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        with self._lock:  # no call may enter the pool after `close` has begun
            if self._closed:
                raise StoreClosed(f"{self._place} was closed; open it again")
            result = asyncio.get_running_loop().run_in_executor(self._pool, work)
        return await result

    async def close(self) -> None:
        with self._lock:
            self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
