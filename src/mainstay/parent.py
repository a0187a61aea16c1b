"""A process that shall not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Be killed when the process `parent`, which started this one, dies; exit here and now if it has already.

    Linux keeps the promise even while a job holds the interpreter or is stopped. Elsewhere a process has to notice
    that the pipe to its parent has closed. Strictly, it is the *thread* that started a process whose end counts: start
    processes from a thread that stays.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    # asked after, not before: a parent that dies in between would go unnoticed
    if os.getppid() != parent:
        os._exit(1)
