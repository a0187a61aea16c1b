"""Limits the output of generators: the first lines of each second, and the number of the others.

A test that prints a line for each request prints more than anyone can read, and printing would cost more than the
requests. So lines are passed on or counted where they are printed, before they cost a system call. Output that bypasses
Python (of a C library, or a process that a test starts) is limited by the reader.
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
#: bytes of a line; the rest is cut off
LONGEST_LINE = 4000


class LineLimiter:
    """Passes on the first `most` lines of each second. Takes bytes in pieces of any size."""

    def __init__(
        self, pass_on: Callable[[bytes], None], *, most: int = MOST_LINES, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._pass_on = pass_on
        self._most = most
        self._now = now
        self._began = now()
        self._passed = 0
        self._rest = b""
        """an incomplete line"""
        self.dropped = 0
        """lines of this second that were not passed on"""

    def feed(self, data: bytes) -> None:
        """Take a piece of the stream."""
        self.tick()
        if self._passed >= self._most:
            # dropped lines only need to be counted
            ended = data.count(b"\n")
            self.dropped += ended
            self._rest = (data[data.rfind(b"\n") + 1 :] if ended else self._rest + data)[: LONGEST_LINE + 1]
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LONGEST_LINE + 1]
        for line in lines:
            self._line(line)

    def tick(self) -> None:
        """At the start of a new second, report the number of dropped lines."""
        if self._now() - self._began >= 1.0:
            self._turn()

    def _turn(self) -> None:
        dropped, self.dropped = self.dropped, 0
        self._began, self._passed = self._now(), 0
        if dropped:
            self._pass_on(b"... and %s more line%s" % (f"{dropped:,}".encode(), b"" if dropped == 1 else b"s"))

    def end(self) -> None:
        """The stream has ended: pass on the rest."""
        self._turn()
        if self._rest:
            self._line(self._rest)
            self._rest = b""

    def lift(self) -> None:
        """Pass on everything from now on."""
        self.end()
        self._most = 1 << 62

    def _line(self, line: bytes) -> None:
        if self._passed >= self._most:
            self.dropped += 1
            return
        self._passed += 1
        self._pass_on(line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + b"...")


class LimitedStream(io.RawIOBase):
    """An output stream of this process with a limit. Lines are written at once, so that a killed process has printed
    them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.limiter = LineLimiter(self._write)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self.limiter.feed(piece)
        return len(piece)

    def _write(self, line: bytes) -> None:
        left = line + b"\n"
        # the collector may be gone; then this process ends soon
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._number, left) :]


def as_text(stream: LimitedStream) -> io.TextIOWrapper:
    """A text stream on top, for `print`."""
    return io.TextIOWrapper(io.BufferedWriter(stream), encoding="utf-8", errors="backslashreplace", line_buffering=True)
