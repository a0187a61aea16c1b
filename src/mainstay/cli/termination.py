"""SIGTERM and a closed terminal, for commands that have something to end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import typer

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP cancel the current task, as Ctrl-C does; the command then exits with 128 + the signal.

    Schedulers, systemd, Kubernetes and `timeout` send SIGTERM. Without a handler it ends the process at once, and
    nothing that stands in a `finally` runs.
    """
    loop, task, received = asyncio.get_running_loop(), asyncio.current_task(), list[int]()
    assert task is not None

    def cancel(number: int) -> None:
        received.append(number)
        task.cancel()

    # nohup has SIGHUP ignored: that stays so
    numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, cancel, number)
    try:
        yield
    except asyncio.CancelledError:
        if not received:
            raise
        raise typer.Exit(128 + received[0]) from None
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
