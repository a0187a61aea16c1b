"""The end of a process: the event, and its words."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from mainstay.worker.exits import describe_exit, on_exit


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exited with code 0"),
        (-11, "was killed by SIGSEGV (a memory fault in native code)"),
        (-15, "was killed by SIGTERM"),
        (-40, "was killed by signal 40"),
    ],
)
def test_an_exit_status_is_told_in_words(status: int, words: str) -> None:
    assert describe_exit(status) == words


@pytest.mark.parametrize("pidfds", [True, False], ids=["pidfd", "thread"])
async def test_an_end_is_told_once_and_not_when_it_was_called_off(
    pidfds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not pidfds:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    told: asyncio.Queue[str] = asyncio.Queue()
    on_exit(process.pid, lambda: told.put_nowait("called off"))()
    on_exit(process.pid, lambda: told.put_nowait("ended"))

    process.kill()

    assert await told.get() == "ended"
    assert process.poll() == -9, "it was left to us to reap"
    await asyncio.sleep(0)
    assert told.empty()
