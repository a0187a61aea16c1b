"""The end of a process: as an event, in words, and how to end this one at once."""

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

#: the exit code of a process whose job ended the loop
EXITED = 70

_HINTS = {
    signal.SIGKILL: "from outside; most often by the kernel, because memory ran out",
    signal.SIGSEGV: "a memory fault in native code",
    signal.SIGBUS: "a memory fault in native code",
    signal.SIGABRT: "native code gave up",
    signal.SIGILL: "native code built for another processor",
    signal.SIGXCPU: "its limit of processor time",
}


def describe_exit(status: int) -> str:
    """An exit status (a code, or minus the signal) for people.

    >>> describe_exit(3), describe_exit(-11)
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


def on_exit(pid: int, notify: Callable[[], None]) -> Callable[[], None]:
    """Call `notify` once, on this loop, when a child of this process has ended; the caller reaps it. The returned
    function cancels that."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not on every system, and not in every sandbox
        return _on_exit_by_thread(pid, notify, loop)

    def forget() -> None:
        nonlocal handle
        if handle >= 0:
            loop.remove_reader(handle)
            os.close(handle)
            handle = -1

    def exited() -> None:
        forget()
        notify()

    loop.add_reader(handle, exited)
    return forget


def _on_exit_by_thread(pid: int, notify: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    called_off = False

    def forget() -> None:
        nonlocal called_off
        called_off = True

    def exited() -> None:
        if not called_off:
            notify()

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):  # another part of the program has reaped it: it has ended
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(exited)

    threading.Thread(target=wait, name="mainstay-waiter", daemon=True).start()
    return forget


def leave_at_once(error: BaseException) -> NoReturn:
    """End this process without cleanup.

    A job called `sys.exit()` in a task that it had started, and that ends the loop. A cleanup would end the other jobs
    as if they had been asked to stop, and delete the record of which jobs ran.
    """
    log.critical("a job ended its process with %s", type(error).__name__, exc_info=error)
    logging.shutdown()
    os._exit(EXITED)
