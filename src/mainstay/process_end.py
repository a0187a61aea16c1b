"""The end of a process that an event loop has started."""

from __future__ import annotations

import asyncio
import contextlib


async def kill_process(process: asyncio.subprocess.Process, *, within_s: float = 5.0) -> None:
    """Kill a process and wait for its exit, also if the caller is cancelled again: a loop that ends before the exit
    leaves the transport of the process open. A process that the system does not end is left after a time limit."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    deadline_s = asyncio.get_running_loop().time() + within_s
    cancellation: asyncio.CancelledError | None = None
    while process.returncode is None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await process.wait()
        except TimeoutError:
            break
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation
