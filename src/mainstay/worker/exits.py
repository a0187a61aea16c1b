"""The end of a process: seen as an event, not noticed by asking; said in words; and, one's own, made at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import NoReturn

log = logging.getLogger("mainstay.worker")

#: what a process ends with when a job told its loop to exit
EXITED = 70

_HINTS = {
    signal.SIGKILL: "from outside; most often by the kernel, because memory ran out",
    signal.SIGSEGV: "a memory fault in native code",
    signal.SIGBUS: "a memory fault in native code",
    signal.SIGABRT: "native code gave up",
    signal.SIGILL: "native code built for another processor",
    signal.SIGXCPU: "its limit of processor time",
}


def in_words(status: int) -> str:
    """An exit status (a code, or minus the signal) for people.

    >>> in_words(3), in_words(-11)
    ('exited with code 3', 'was killed by SIGSEGV (a memory fault in native code)')
    """
    if status >= 0:
        return f"exited with code {status}"
    try:
        number = signal.Signals(-status)
    except ValueError:
        return f"was killed by signal {-status}"
    hint = _HINTS.get(number)
    return f"was killed by {number.name}" + (f" ({hint})" if hint else "")


def on_exit(pid: int, tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` once, on this loop, when a process of ours has ended; it is left to the caller to reap. What is
    returned calls it off."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not everywhere, and not in every sandbox
        return _on_exit_by_thread(pid, tell, loop)

    def forget() -> None:
        nonlocal handle
        if handle >= 0:
            loop.remove_reader(handle)
            os.close(handle)
            handle = -1

    def exited() -> None:
        forget()
        tell()

    loop.add_reader(handle, exited)
    return forget


def _on_exit_by_thread(pid: int, tell: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    called_off = False

    def forget() -> None:
        nonlocal called_off
        called_off = True

    def exited() -> None:
        if not called_off:
            tell()

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):  # reaped by somebody else: it has ended
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile, and nobody asks any more
            loop.call_soon_threadsafe(exited)

    threading.Thread(target=wait, name="mainstay-waiter", daemon=True).start()
    return forget


def leave_at_once(error: BaseException) -> NoReturn:
    """End this process without cleaning up.

    A job called `sys.exit()` in a task it had started, and that ends the loop. Whoever cleaned up now would end its
    neighbours as if they had been asked to, and wipe out the traces of what ran.
    """
    log.critical("a job ended its process with %s", type(error).__name__, exc_info=error)
    logging.shutdown()
    os._exit(EXITED)
