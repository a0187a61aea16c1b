"""Stopping a process that shares a store with others."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from mainstay.stores import JobStore


async def stop_between_writes(pid: int, store: JobStore) -> None:
    """SIGSTOP, but not while it writes: one that is stopped with the turn to write to SQLite keeps it from others."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        while not _has_stopped(pid):
            await asyncio.sleep(0.01)
        writing = asyncio.ensure_future(store.beat([]))
        await asyncio.wait([writing], timeout=1.0)
        if writing.done():
            writing.result()
            return
        os.kill(pid, signal.SIGCONT)
        await writing


def _has_stopped(pid: int) -> bool:
    """Whether all its threads have: on a busy machine one may still get a lock that it waited for."""
    stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)
