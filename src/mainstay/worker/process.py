"""A process with its own group: started, watched by its pidfd, and killed with everything that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from .exits import on_exit
from .spawn import STOP_SIGNALS


class Process:
    """Start it on the loop that watches it, in a thread that stays (see `die_with_parent`).

    It leads its own session: Ctrl-C at the terminal does not reach it, and `kill` also ends the processes that it
    started and that have not left its group. The same happens when it ends by itself. A job that wants to leave a
    program running has to start it in another session (`start_new_session=True`).
    """

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int]) -> None:
        # until it has its own handlers, a signal to the whole service must not stop it: the mask is inherited
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.DEVNULL, pass_fds=pass_fds, start_new_session=True
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def pid(self) -> int:
        return self._popen.pid

    async def ended(self) -> int:
        """Wait for its end: its exit code, or minus the signal that killed it."""
        exited = asyncio.Event()
        forget = on_exit(self.pid, exited.set)
        try:
            await exited.wait()
        finally:
            forget()
        return self.reap()

    def reap(self) -> int:
        """Kill it and its group, whatever state they are in, and wait for it: its exit status."""
        # until it is reaped, the system gives its pid and that of its group to no other process
        self.kill()
        return self._popen.wait()

    def kill(self) -> None:
        """SIGKILL to it and its group: also ends what is stopped, or busy in native code."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
