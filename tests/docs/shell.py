"""The little of a shell that pages need beside `mainstay` itself: variables, workers in the background, signals.

- `export NAME=value` holds for all later commands.
- `mainstay ... &` starts a real process; it is ended with the page, and a page should end it itself.
- `curl` asks a server that was started so.
- `kill $!` and `kill -9 $!` are for the one that was started last.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_ASSIGNED = re.compile(r"(MAINSTAY_[A-Z_]+)=(\S+)")
_SIGNALS = {("kill",): signal.SIGTERM, ("kill", "-9"): signal.SIGKILL}
_PATIENCE_S = 300


class Shell:
    """Where the commands of a page are typed."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self._job: subprocess.Popen[bytes] | None = None
        self._typed = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self._end(signal.SIGKILL)

    @property
    def running(self) -> str:
        """What runs in the background, as it was typed."""
        return self._typed if self._job is not None else ""

    def did(self, words: list[str]) -> bool:
        """Do it, if it is known how."""
        match words:
            case ["export", assigned] if found := _ASSIGNED.fullmatch(assigned):
                self.variables[found[1]] = found[2]
            case ["mainstay", *rest, "&"] if not self.running:
                self._typed = " ".join(words)
                self._job = subprocess.Popen(
                    [sys.executable, "-m", "mainstay", *rest],
                    env={**os.environ, **self.variables},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                if "--port" in rest:
                    _await_port(int(rest[rest.index("--port") + 1]))
            case [*kill, "$!"] if tuple(kill) in _SIGNALS and self.running:
                self._end(_SIGNALS[tuple(kill)])
            case _:
                return False
        return True

    def fetched(self, words: list[str]) -> str:
        """What curl says."""
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=_PATIENCE_S).stdout

    def _end(self, number: signal.Signals) -> None:
        assert self._job is not None
        if number == signal.SIGKILL:
            # a dying process closes its pipes a moment before the system kills its children, who on a busy machine have
            # the time to give their jobs back; killed without warning means that they have not
            for child in _children(self._job.pid):
                os.kill(child, signal.SIGSTOP)
        self._job.send_signal(number)
        try:
            self._job.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._job.kill()
            self._job.wait()
            raise
        finally:
            self._job = None


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _await_port(port: int) -> None:
    """A person would read the line that says it listens; here it is tried until it does."""
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nobody listens on port {port}")
