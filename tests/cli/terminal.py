"""Programs in a terminal of their own, as a person has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: enough for a busy machine, and well below the timeout of a test
_WITHIN_S = 120.0


class PseudoTerminal:
    """Runs a program on a pseudo-terminal. A test can wait for its output, and answer it."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, size: tuple[int, int] | None = None) -> None:
        self._main, far = pty.openpty()
        if size is not None:
            self.resize(*size)
        self.process = subprocess.Popen(command, stdin=far, stdout=far, stderr=far, env=env, close_fds=True)
        os.close(far)
        self.raw = ""
        """the output with its control sequences"""

    @property
    def shown(self) -> str:
        """The output as text."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def wait_for(self, text: str, *, within_s: float = _WITHIN_S) -> None:
        """Read until the text is shown; fail with the output if it does not appear in time."""
        deadline = time.monotonic() + within_s
        while text not in self.shown:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} did not appear; the terminal shows\n{self.shown}")

    def answer(self, text: str) -> None:
        os.write(self._main, text.encode())

    def end(self, *, within_s: float = _WITHIN_S) -> int:
        """Read the rest, and return the exit code; fail with the output if the program does not end in time."""
        deadline = time.monotonic() + within_s
        while self._read(deadline):
            pass
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program did not end; the terminal shows\n{self.shown}") from None

    def _read(self, deadline: float) -> bool:
        """Read more output; False at its end, and at the deadline."""
        ready, _, _ = select.select([self._main], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:  # the other side is closed
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._main)


class Terminal(PseudoTerminal):
    """Runs `mainstay`."""

    def __init__(self, *words: str, columns: int = 100, **environ: str) -> None:
        env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "40", **environ}
        super().__init__([sys.executable, "-m", "mainstay", *words], env)
