"""Work that takes long, done beside the event loop: in one of two threads of its own.

A thread shares the interpreter with the loop, which gets its turn every few milliseconds, but not within one call into
C. So what is given to a thread is limited in bytes by the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: work on fewer bytes than this takes about a millisecond, and is done at once
SMALL = 32 * 1024
_threads = ThreadPoolExecutor(2, thread_name_prefix="mainstay-web")


async def in_thread(work: Callable[[], T], size: int) -> T:
    """Do it: at once if it is about few bytes, else in a thread."""
    if size <= SMALL:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)


__all__ = ["SMALL", "in_thread"]
