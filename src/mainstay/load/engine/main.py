"""The generator's process: `python -m mainstay.load.engine.main FD PARENT`, spawned by a `Fleet`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys

from ...parent import die_with_parent
from ..extra import extra_needed
from .generator import Generator
from .messages import Ear, Go, Quit, ToGenerator, framed

with extra_needed("a load test"):
    import uvloop

log = logging.getLogger("mainstay.load")


async def work(link: socket.socket) -> None:
    """Hear and obey until told to leave, or until nobody is there any more."""
    reader, writer = await asyncio.open_connection(sock=link)
    ear = Ear(reader, ToGenerator)
    generator = Generator(lambda message: writer.write(framed(message)))
    running: set[asyncio.Task[None]] = set()
    while (message := await ear.hear()) is not None and not isinstance(message, Quit):
        if isinstance(message, Go):
            # what lives until the end is not looked at by each collection; what is made from here on is short-lived
            gc.collect()
            gc.freeze()
        # aside, so that a stop is always heard
        task = asyncio.ensure_future(generator.hear(message))
        running.add(task)
        task.add_done_callback(running.discard)
        task.add_done_callback(_broke)
    if running:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    writer.close()


def _broke(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the generator broke", exc_info=error)
        os._exit(70)


def main() -> None:
    """What the process runs."""
    # Ctrl-C reaches every process of a terminal; the collector decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(int(sys.argv[2]))
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # responses come and go by tens of thousands a second, and few are part of a cycle
    gc.set_threshold(50_000, 50, 100)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
