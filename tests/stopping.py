"""Stopping a process that shares a store with others."""

from __future__ import annotations

import asyncio
import os
import signal

from mainstay.stores import JobStore


async def stop_between_writes(pid: int, store: JobStore) -> None:
    """SIGSTOP, but not while it writes: one that is stopped with the turn to write to SQLite keeps it from others."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        writing = asyncio.ensure_future(store.beat([]))
        await asyncio.wait([writing], timeout=1.0)
        if writing.done():
            writing.result()
            return
        os.kill(pid, signal.SIGCONT)
        await writing
