"""Threads for calls that block, so that the caller's loop does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...errors import StoreClosed

T = TypeVar("T")


class Threads:
    """A few threads of one store. What was accepted is finished before it is closed."""

    def __init__(self, n: int, *, place: str) -> None:
        self._place = place
        self._pool = ThreadPoolExecutor(n, thread_name_prefix="mainstay-versioned")
        self._door = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        with self._door:  # nothing may come in behind the last one
            if self._closed:
                raise StoreClosed(f"the store {self._place} was closed; open it again")
            answer = asyncio.get_running_loop().run_in_executor(self._pool, work)
        return await answer

    async def close(self) -> None:
        with self._door:
            self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
