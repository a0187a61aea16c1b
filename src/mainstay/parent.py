"""End a process with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have this process killed when `parent`, which started it, dies; exit at once if it is already dead.

    On Linux this works even while a job holds the interpreter or is stopped. On other systems a process must notice
    that the pipe to its parent has closed. Strictly, the end of the *thread* that started the process counts: start
    processes from a thread that stays.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    # checked after the call: a parent that died before it would go unnoticed
    if os.getppid() != parent:
        os._exit(1)
