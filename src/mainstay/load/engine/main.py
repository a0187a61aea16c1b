"""The generator process: `python -m mainstay.load.engine.main FD PARENT`, started by `GeneratorProcess`."""

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

#: time limit for the exit once the collector is gone, whatever a step or a thread still does
_LEAVE_S = 10
_streams = (LimitedStream(1), LimitedStream(2))


async def work(link: socket.socket) -> None:
    """Handle messages until `Quit`, or until the collector is gone."""
    reader, writer = await asyncio.open_connection(sock=link)
    messages = MessageReader(reader, ToGenerator)
    generator = Generator(lambda message: writer.write(framed(message)))
    running: set[asyncio.Task[None]] = set()
    ticking = asyncio.ensure_future(_tick())
    while (message := await messages.read()) is not None and not isinstance(message, Quit):
        if isinstance(message, Go):
            # objects that live until the end are excluded from collections; new ones are short-lived
            gc.collect()
            gc.freeze()
        # in a task, so that a stop is always read
        task = asyncio.ensure_future(generator.handle(message))
        running.add(task)
        task.add_done_callback(running.discard)
        task.add_done_callback(_broke)
        if isinstance(message, Begin):
            # after the test is loaded: its own logging setup has priority
            task.add_done_callback(_configure_logging)
    signal.alarm(_LEAVE_S)
    for task in (ticking, *running):
        task.cancel()
    await asyncio.wait({ticking, *running})
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    writer.close()


async def _tick() -> None:
    """Once a second, report how many lines were dropped."""
    while True:
        await asyncio.sleep(1.0)
        for stream in _streams:
            stream.limiter.tick()


def _broke(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _print_everything()
        log.critical("the generator broke", exc_info=error)
        os._exit(70)


def _print_everything() -> None:
    """Lift the limit on printed lines: the error that ends the process must be printed in full."""
    for text in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a test may have replaced them
            text.flush()
    for stream in _streams:
        stream.limiter.lift()


def _configure_logging(_: object) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")


def _hang_up(number: int) -> None:
    """A fork of this process is not a generator: it must not use the connection, and must end on SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.close(number)


def _not_ours(_: int, __: object) -> None:
    """A signal that the collector handles."""


def main() -> None:
    """The entry point of the process."""
    # Ctrl-C, a closed terminal and `timeout` reach every process of the group; the collector handles them
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # handled, not ignored: a program started by a step would inherit that, and could not be terminated
    signal.signal(signal.SIGTERM, _not_ours)
    die_with_parent(int(sys.argv[2]))
    # the collector sends it to a hanging process: print a traceback, then end
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=False, chain=True)
    sys.stdout, sys.stderr = map(as_text, _streams)
    link, me = int(sys.argv[1]), os.getpid()
    os.register_at_fork(after_in_child=functools.partial(_hang_up, link))
    # tens of thousands of responses are created per second, and few are part of a cycle
    gc.set_threshold(50_000, 50, 100)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work(socket.socket(fileno=link)))
    finally:
        if os.getpid() != me:
            os._exit(0)  # a fork that a test made and left running
        _print_everything()


if __name__ == "__main__":
    main()
