"""Threads for long computations beside the event loop.

A thread shares the interpreter with the loop, which gets its turn every few milliseconds, but not within one call into
C. So callers limit the bytes of one computation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: work on fewer bytes takes about a millisecond, and is done at once
SMALL_BYTES = 32 * 1024
_threads = ThreadPoolExecutor(2, thread_name_prefix="mainstay-web")


async def in_thread(work: Callable[[], T], size: int) -> T:
    """Run `work` at once if `size` in bytes is small, else in a thread."""
    if size <= SMALL_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)


__all__ = ["SMALL_BYTES", "in_thread"]
