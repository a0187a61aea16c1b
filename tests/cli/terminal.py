"""The command in a terminal of its own, as a person has it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from types import TracebackType
from typing import Self

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs `mainstay` on a pseudo-terminal; what it shows can be waited for, and answered."""

    def __init__(self, *words: str, columns: int = 100, **environ: str) -> None:
        self._main, far = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "40", **environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mainstay", *words], stdin=far, stdout=far, stderr=far, env=env, close_fds=True
        )
        os.close(far)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Read until it is there; the test's own timeout is the limit."""
        while text not in self.shown:
            if not self._read():
                raise AssertionError(f"{text!r} never came; it showed\n{self.shown}")

    def answer(self, text: str) -> None:
        os.write(self._main, text.encode())

    def end(self) -> int:
        """Read what is left; the exit code."""
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        try:
            data = os.read(self._main, 65536)
        except OSError:  # the other side is closed
            return False
        self.shown += _CONTROL.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
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
