"""What generators print, within bounds: the first lines of each second, and how many there were beyond.

A test that prints a line for each request says more than anybody reads, and saying it would cost more than the requests
do. So lines are let through or counted where they are printed, before they cost a system call. What is written past
Python (by a library in C, by a process that a test starts) is held to the same bounds by whoever reads it.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable
from typing import Any

#: lines of one stream, a second
MOST_LINES = 50
#: bytes of a line; the rest of it is left out
LONGEST_LINE = 4000


class LineLimiter:
    """Lets the first `most` lines of each second through. Fed with bytes as they come, in pieces of any size."""

    def __init__(
        self, pass_on: Callable[[bytes], None], *, most: int = MOST_LINES, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._pass_on = pass_on
        self._most = most
        self._now = now
        self._began = now()
        self._passed = 0
        self._rest = b""
        """a line that has not ended"""
        self.held = 0
        """lines of this second that were not let through"""

    def feed(self, data: bytes) -> None:
        """Take some of the stream."""
        self.tick()
        if self._passed >= self._most:
            # nothing of it is told: counted is all it needs to be
            ended = data.count(b"\n")
            self.held += ended
            self._rest = (data[data.rfind(b"\n") + 1 :] if ended else self._rest + data)[: LONGEST_LINE + 1]
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LONGEST_LINE + 1]
        for line in lines:
            self._line(line)

    def tick(self) -> None:
        """If it is a new second, what was held back in the last one is told as a number."""
        if self._now() - self._began >= 1.0:
            self._turn()

    def _turn(self) -> None:
        held, self.held = self.held, 0
        self._began, self._passed = self._now(), 0
        if held:
            self._pass_on(b"... and %s more line%s" % (f"{held:,}".encode(), b"" if held == 1 else b"s"))

    def end(self) -> None:
        """Nothing more comes: tell what is left."""
        self._turn()
        if self._rest:
            self._line(self._rest)
            self._rest = b""

    def open(self) -> None:
        """Let everything through from now on: these are last words."""
        self.end()
        self._most = 1 << 62

    def _line(self, line: bytes) -> None:
        if self._passed >= self._most:
            self.held += 1
            return
        self._passed += 1
        self._pass_on(line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + b"...")


class LimitedStream(io.RawIOBase):
    """A stream of this process, through a sieve. What is let through is written at once, so that a process that is
    killed has said it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.sieve = LineLimiter(self._write)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def write(self, data: Any) -> int:
        taken = bytes(data)
        self.sieve.feed(taken)
        return len(taken)

    def _write(self, line: bytes) -> None:
        left = line + b"\n"
        # whoever reads it may be gone; then so are we, soon
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._number, left) :]


def as_text(stream: LimitedStream) -> io.TextIOWrapper:
    """The same, to print to."""
    return io.TextIOWrapper(io.BufferedWriter(stream), encoding="utf-8", errors="backslashreplace", line_buffering=True)
