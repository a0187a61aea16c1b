"""Keeps one outside process. It runs as a file of its own, without imports of Mainstay, so that it starts at once.

    keeper.py FOLDER NAME GRACE_S READY_FD COMMAND...

It holds the lock NAME.lock while it lives: a free lock means that it is dead, even if its pid is in use again.
NAME.json contains its host and pid, and is written before the command starts: at most one keeper runs for a name.
NAME.exit contains the exit code of the ended command. SIGTERM is passed on once; a command that does not end within the
grace period is killed.
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
    """Run in the child before the command: it dies with its keeper, since no one could check or stop it afterwards. The
    same as `mainstay.parent`, which cannot be imported here."""
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
        self._stopping = False

    def begin(self) -> bool:
        """Take the name. Returns False if another keeper runs or ran the command."""
        lock = os.open(self._folder / f"{self._name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        record = self._folder / f"{self._name}.json"
        while not record.exists():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)  # its holder is about to write the record
            else:
                break
        if record.exists():
            return False
        self._write(record, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        return True

    def run(self, command: list[str]) -> None:
        """Run the command to its end, and write its exit code."""
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
            if self._stopping:
                self._pass_on()
            code = self._child.wait()
        self._write(self._folder / f"{self._name}.exit", str(code))

    def _stop(self, *_: object) -> None:
        if not self._stopping:
            self._stopping = True
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
        """Write a file atomically."""
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(path)


def main(folder: str, name: str, grace_s: str, ready: str, *command: str) -> None:
    if os.fork():
        os._exit(0)  # its starter does not have to wait for it
    os.setsid()
    keeper = Keeper(Path(folder), name, float(grace_s))
    ours = keeper.begin()
    os.close(int(ready))
    if ours:
        keeper.run(list(command))


if __name__ == "__main__":
    main(*sys.argv[1:])
