"""Where jobs note that they ran: a file mapped by the driver and every worker, one slot per job.

Slot `i` holds the monotonic time at which job `i` first started; a second array, the process it ran in; one counter,
how many starts were repeats. Noting costs about a microsecond, so it weighs the same on every system.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from functools import cache
from pathlib import Path

CAPACITY = 200_000
_REPEATS = 2 * CAPACITY
_SIZE = (2 * CAPACITY + 1) * 8


class Slots:
    """The slots in one file, which is made if need be."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if os.fstat(fd).st_size < _SIZE:
                os.ftruncate(fd, _SIZE)
            self._values = memoryview(mmap.mmap(fd, _SIZE)).cast("q")
        finally:
            os.close(fd)

    def mark(self, i: int) -> None:
        values = self._values
        if values[i]:
            values[_REPEATS] += 1
            return
        values[i] = time.monotonic_ns()
        values[CAPACITY + i] = os.getpid()

    def clear(self) -> None:
        self._values[:] = memoryview(bytes(_SIZE)).cast("q")

    def started(self, first: int, n: int) -> list[int]:
        """When each of the jobs started; 0 for one that has not."""
        return self._values[first : first + n].tolist()

    def pids(self, first: int, n: int) -> list[int]:
        return self._values[CAPACITY + first : CAPACITY + first + n].tolist()

    @property
    def repeats(self) -> int:
        return self._values[_REPEATS]


@cache
def _ours() -> Slots:
    return Slots(Path(os.environ["BENCH_SLOTS"]))


def mark(i: int) -> None:
    """Note that job `i` starts, in the file that `BENCH_SLOTS` names."""
    _ours().mark(i)


# -- the job of the kill scenario, which may start more than once ------------------------------


def note(tag: str, what: str) -> None:
    """Append a line to the file named by `BENCH_STARTS`."""
    with Path(os.environ["BENCH_STARTS"]).open("a") as file:
        file.write(f"{time.monotonic_ns()} {tag} {what}\n")


def notes(path: Path, tag: str, what: str) -> list[int]:
    """When `tag` noted `what`, oldest first."""
    if not path.exists():
        return []
    lines = (line.split() for line in path.read_text().splitlines())
    return [int(at) for at, who, did in lines if (who, did) == (tag, what)]


def sleep(tag: str, seconds: float) -> None:
    note(tag, "start")
    time.sleep(seconds)
    note(tag, "end")


async def asleep(tag: str, seconds: float) -> None:
    note(tag, "start")
    await asyncio.sleep(seconds)
    note(tag, "end")
