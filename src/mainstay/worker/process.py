"""A process with a group of its own: started, watched by its pidfd, and gone with everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from .spawn import STOP_SIGNALS

_HINTS = {
    signal.SIGKILL: "from outside; most often by the kernel, because memory ran out",
    signal.SIGSEGV: "a memory fault in native code",
    signal.SIGBUS: "a memory fault in native code",
    signal.SIGABRT: "native code gave up",
    signal.SIGILL: "native code built for another processor",
    signal.SIGXCPU: "its limit of processor time",
}


class Process:
    """Start it on the loop that shall see it die, in a thread that stays (see `die_with_parent`).

    It leads a session of its own: Ctrl-C at the terminal does not reach it, and `kill` ends with it what it started
    and what has not left its group. The same when it ends by itself. A job that wants to leave a program behind has
    to start that in another session (`start_new_session=True`).
    """

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int]) -> None:
        # until it has handlers of its own, what stops a whole service must not stop it: the mask is inherited
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
        await self._exit()
        return self.bury()

    def bury(self) -> int:
        """See that it and its group are no more, whatever state they are in."""
        # as long as it is not reaped, its number and that of its group are not given to anybody else
        self.kill()
        return self._popen.wait()

    def kill(self) -> None:
        """SIGKILL to it and its group: also ends what is stopped, or busy in native code."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _exit(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not everywhere, and not in every sandbox
            await loop.run_in_executor(None, self._popen.wait)
            return
        exited = asyncio.Event()
        loop.add_reader(handle, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)


def in_words(status: int) -> str:
    """How a process ended.

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
