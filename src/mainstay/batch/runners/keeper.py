"""Keeps one outside process: run as a file of its own, so that it starts at once and nothing can be missing.

    keeper.py FOLDER NAME GRACE_S READY_FD COMMAND...

It holds the lock NAME.lock for as long as it lives, so that a free lock means dead, whatever its number is used for by
now. NAME.json says who it is, and is written before the command begins: there is at most one for a name, ever.
NAME.exit has the exit code once the command has ended. SIGTERM is passed on, once; what does not end within the grace
is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_NOT_STARTED = 127
_PR_SET_PDEATHSIG = 1
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _dying_with(keeper: int) -> Callable[[], None]:
    """What a process does before it becomes the command: it is killed when its keeper is, for then nobody could look
    at it or stop it. As `mainstay.parent`, which cannot be imported here."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(1)

    return prepare


class Keeper:
    def __init__(self, folder: Path, name: str, grace_s: float) -> None:
        self._folder = folder
        self._name = name
        self._grace_s = grace_s
        self._child: subprocess.Popen[bytes] | None = None
        self._asked = False

    def begin(self) -> bool:
        """Whether it is ours to run: nobody has, and nobody is at it."""
        lock = os.open(self._folder / f"{self._name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        record = self._folder / f"{self._name}.json"
        while not record.exists():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)  # whoever holds it is about to write it
            else:
                break
        if record.exists():
            return False
        self._write(record, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        return True

    def run(self, command: list[str]) -> None:
        """Run it to its end, and tell how it ended."""
        for number in _STOPS:
            signal.signal(number, self._stop)
        signal.signal(signal.SIGALRM, self._kill)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        try:
            self._child = subprocess.Popen(  # noqa: S603 - the command is the user's
                command,
                stdin=subprocess.DEVNULL,
                process_group=0,
                preexec_fn=_dying_with(os.getpid()),  # noqa: PLW1509 - nothing here has a second thread
            )
        except OSError as error:
            sys.stderr.write(f"{command[0]} cannot be started: {error}\n")
            code = _NOT_STARTED
        else:
            if self._asked:
                self._pass_on()
            code = self._child.wait()
        self._write(self._folder / f"{self._name}.exit", str(code))

    def _stop(self, *_: object) -> None:
        if not self._asked:
            self._asked = True
            if self._child is not None:
                self._pass_on()

    def _pass_on(self) -> None:
        self._signal(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, self._grace_s)

    def _kill(self, *_: object) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _write(self, path: Path, text: str) -> None:
        """There whole, or not at all."""
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(path)


def main(folder: str, name: str, grace_s: str, ready: str, *command: str) -> None:
    if os.fork():
        os._exit(0)  # so that nobody has to wait for it
    os.setsid()
    keeper = Keeper(Path(folder), name, float(grace_s))
    ours = keeper.begin()
    os.close(int(ready))
    if ours:
        keeper.run(list(command))


if __name__ == "__main__":
    main(*sys.argv[1:])
