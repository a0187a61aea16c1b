"""What all servers share: a port, a process that dies with its starter, and an end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

_START_S = 30
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if os.name == "posix" else None


class Server(Protocol):
    """A running server that gives each system a database of its own."""

    version: str

    def database(self, name: str) -> str:
        """The URL of a new, empty database."""

    def stop(self) -> None: ...


@contextlib.contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """A temporary folder that another user may enter: root has one run PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def own_folder(parent: Path, name: str, user: str | None) -> Path:
    """A folder that belongs to whom the server runs as."""
    made = parent / name
    made.mkdir()
    if user is not None:
        shutil.chown(made, user)
    return made


class OneProcess:
    """What servers of one process share: how it is started, ended and killed. The port stays the same over all that."""

    port: int
    _process: Process

    def start(self) -> None:
        """After a stop or a kill: wait until it answers."""
        self._process.start()

    def stop(self) -> None:
        """A clean end: what it keeps on disk, it keeps."""
        self._process.stop()

    def kill(self) -> None:
        """SIGKILL to all its processes: what the system has been given is kept, what was in their buffers is not."""
        self._process.kill()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stand still meanwhile, with everybody connected, as a machine that is moved does."""
        with self._process.frozen():
            yield

    def answers(self) -> bool:
        """Whether it can be used by now."""
        with socket.create_connection(("127.0.0.1", self.port), 1):
            return True


class Process:
    """One server process; it can be started again after it was stopped or killed.

    It goes with the thread that started it, however that ends (a debugger, SIGKILL): start servers in the main thread.
    """

    def __init__(
        self,
        command: list[str],
        log: Path,
        answers: Callable[[], bool],
        *,
        ends_on: signal.Signals,
        user: str | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._command = command
        self._log = log
        self._answers = answers
        self._ends_on = ends_on
        self._user = user
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self._process is None, "it runs already"
        with self._log.open("ab") as file:
            # a session of its own: Ctrl-C reaches the starter, which stops the server when it is done with it
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                user=self._user,
                cwd=self._cwd,
                start_new_session=True,
                preexec_fn=self._die_with_the_starter,  # noqa: PLW1509  # one system call
            )
        deadline = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self._answers():
                    return
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"{self._command[0]} did not start:\n{self._log.read_text()}")

    def _die_with_the_starter(self) -> None:
        if _libc is not None and hasattr(_libc, "prctl"):
            _libc.prctl(_PR_SET_PDEATHSIG, int(self._ends_on))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it, for example to have it read its configuration again."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ask it to end, and see it gone."""
        if self._process is None:
            return
        if (code := self._process.poll()) not in (None, 0, -self._ends_on):
            # whoever could not reach it has failed by now, and this is why
            print(f"{self._command[0]} had ended by itself ({code}):\n{self._log.read_text()[-2000:]}", file=sys.stderr)
        self._process.send_signal(self._ends_on)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL to it and to all its children, which may be in sessions of their own; see them gone."""
        if self._process is None:
            return
        children = _descendants(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._process = None
        for child in children:
            _signal(child, signal.SIGKILL)
        while any(_alive(child) for child in children):
            time.sleep(0.005)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP to it and to all its children; they go on afterwards."""
        assert self._process is not None, "it does not run"
        # the server first: then it starts no children while they are listed
        _signal(self._process.pid, signal.SIGSTOP)
        children = _descendants(self._process.pid)
        for pid in children:
            _signal(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in (*children, self._process.pid):
                _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    """A child that had ended already is gone as soon as its server goes on and looks after it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    todo = [pid]
    while todo:
        try:
            texts = [path.read_text() for path in Path(f"/proc/{todo.pop()}/task").glob("*/children")]
        except OSError:  # it ended meanwhile
            continue
        children = [int(word) for text in texts for word in text.split()]
        found += children
        todo += children
    return found


def _alive(pid: int) -> bool:
    """Not even a zombie counts: what it held is free then."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
