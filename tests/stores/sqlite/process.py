"""Processes of a test's own: spoken to line by line, and gone when the test is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("program.py")


class Child:
    """One run of a program that prints a line when something has happened and reads one to go on."""

    def __init__(
        self, program: Path, *arguments: object, wrapper: Sequence[str] = (), package: Path = ROOT / "src"
    ) -> None:
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, str(program), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """The next line it prints; empty when it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def tell(self, text: str = "go") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def ask(self, text: str = "go") -> str:
        self.tell(text)
        return self.line()

    def kill(self) -> None:
        """SIGKILL, and see it gone."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGSTOP, and see it stopped."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards, and so are the pipes to it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def until(condition: Callable[[], bool]) -> None:
    """Come back once something is so that sends no event. The test's own timeout is the net."""
    while not condition():
        time.sleep(0.001)
