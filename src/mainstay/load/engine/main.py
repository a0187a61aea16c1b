"""The generator's process: `python -m mainstay.load.engine.main FD PARENT`, spawned by a `Generators`."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import gc
import logging
import os
import signal
import socket
import sys

from ...parent import die_with_parent
from ..extra import extra_needed
from .generator import Generator
from .line_limiter import LimitedStream, as_text
from .messages import Begin, Go, MessageReader, Quit, ToGenerator, framed

with extra_needed("a load test"):
    import uvloop

log = logging.getLogger("mainstay.load")

#: how long it may take to leave once nobody is there any more, whatever a step or a thread of it holds on to
_LEAVE_S = 10
_streams = (LimitedStream(1), LimitedStream(2))


async def work(link: socket.socket) -> None:
    """Hear and obey until told to leave, or until nobody is there any more."""
    reader, writer = await asyncio.open_connection(sock=link)
    messages = MessageReader(reader, ToGenerator)
    generator = Generator(lambda message: writer.write(framed(message)))
    running: set[asyncio.Task[None]] = set()
    telling = asyncio.ensure_future(_tell())
    while (message := await messages.read()) is not None and not isinstance(message, Quit):
        if isinstance(message, Go):
            # what lives until the end is not looked at by each collection; what is made from here on is short-lived
            gc.collect()
            gc.freeze()
        # aside, so that a stop is always heard
        task = asyncio.ensure_future(generator.handle(message))
        running.add(task)
        task.add_done_callback(running.discard)
        task.add_done_callback(_broke)
        if isinstance(message, Begin):
            # after the test was loaded: what it has set up for itself goes before this
            task.add_done_callback(_log_as_usual)
    signal.alarm(_LEAVE_S)
    for task in (telling, *running):
        task.cancel()
    await asyncio.wait({telling, *running})
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    writer.close()


async def _tell() -> None:
    """Each second, how many lines were held back in the last."""
    while True:
        await asyncio.sleep(1.0)
        for stream in _streams:
            stream.sieve.tick()


def _broke(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _last_words()
        log.critical("the generator broke", exc_info=error)
        os._exit(70)


def _last_words() -> None:
    """However much was said before, what ends the process is said in full."""
    for text in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a test may have put anything in their place
            text.flush()
    for stream in _streams:
        stream.sieve.open()


def _log_as_usual(_: object) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")


def _hang_up(number: int) -> None:
    """A process that was forked here is no generator: it has no part in what is said on the line, and whoever forked it
    may want to end it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.close(number)


def _not_ours(_: int, __: object) -> None:
    """A signal that is for the collector."""


def main() -> None:
    """What the process runs."""
    # Ctrl-C, a terminal that is closed, and `timeout` reach every process of the group; the collector decides what they
    # mean
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # handled, not ignored: a program that a step starts would inherit that, and could not be terminated
    signal.signal(signal.SIGTERM, _not_ours)
    die_with_parent(int(sys.argv[2]))
    # the collector sends it to a process that it gives up: where it is, and then its end
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=False, chain=True)
    sys.stdout, sys.stderr = map(as_text, _streams)
    link, me = int(sys.argv[1]), os.getpid()
    os.register_at_fork(after_in_child=functools.partial(_hang_up, link))
    # responses come and go by tens of thousands a second, and few are part of a cycle
    gc.set_threshold(50_000, 50, 100)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work(socket.socket(fileno=link)))
    finally:
        if os.getpid() != me:
            os._exit(0)  # a clone, which a test made by a fork and left to run on; nobody is to hear of it
        _last_words()


if __name__ == "__main__":
    main()
