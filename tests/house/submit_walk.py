"""How far a submit goes: the functions of Mainstay that one `await task.submit(...)` on SQLite enters.

Counted by the profiler, on the caller's thread and on the store's writer thread, for the second of two submits: the
first one opens the store. `python -m tests.house.submit_walk` prints the walk.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import mainstay
from mainstay import App

#: what the house allows
MOST_FUNCTIONS = 60
MOST_FILES = 20

_SOURCE = str(Path(mainstay.__file__).parent)


class SubmitWalk(NamedTuple):
    """The functions that one submit enters, in the order of their first call."""

    calls: Counter[CodeType]

    @property
    def functions(self) -> int:
        return len(self.calls)

    @property
    def files(self) -> int:
        return len({code.co_filename for code in self.calls})

    @property
    def lines(self) -> list[str]:
        """One line for each function: file, name, calls."""
        return [
            f"{code.co_filename.removeprefix(_SOURCE + '/')}: {code.co_qualname} x{n}" for code, n in self.calls.items()
        ]


class _Tracer:
    """Counts the calls of Mainstay's functions while it is on. One call of a coroutine function counts once, however
    often it is resumed."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.on = False
        # kept, so that no frame's id is used twice
        self._frames: dict[int, FrameType] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self.on or event != "call" or id(frame) in self._frames:
            return
        if frame.f_code.co_filename.startswith(_SOURCE):
            self._frames[id(frame)] = frame
            self.calls[frame.f_code] += 1


async def _measured(url: str, tracer: _Tracer) -> None:
    app = App(url)

    @app.task(name="mail.send")
    async def send(to: str, copies: int = 1) -> str:
        return to * copies

    async with app:
        await send.submit("a@b.c")
        await asyncio.sleep(0.05)  # what follows the first commit is over
        gc.collect()
        sys.setprofile(tracer)
        tracer.on = True
        await send.submit("b@c.d", copies=2)
        await asyncio.sleep(0.05)  # the writer thread wakes sleepers after its answer
        tracer.on = False
        sys.setprofile(None)


def submit_walk() -> SubmitWalk:
    """Measure one submit."""
    tracer = _Tracer()
    threading.setprofile(tracer)  # for the writer thread, which the first submit starts
    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_measured(f"sqlite:///{folder}/jobs.db", tracer))
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return SubmitWalk(tracer.calls)


def main() -> None:
    walk = submit_walk()
    print("\n".join(walk.lines))
    print(f"submit on SQLite: {walk.functions} functions (at most {MOST_FUNCTIONS}), {walk.files} files ({MOST_FILES})")


if __name__ == "__main__":
    main()
