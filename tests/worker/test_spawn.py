"""An engine process as its supervisor holds it: its words, its death, and no waiting for either."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import pytest

from mainstay.worker.messages import Drain, EngineConfig, FromEngine, Pulsed, Unfit
from mainstay.worker.spawn import EngineHandle, spawn
from mainstay.worker.worker_options import WorkerOptions

LAST_WORDS = """
import json, os, sys
config = json.loads(sys.argv[1])
os.write(config["link_fd"], b'not json\\n{"type":"Unfit","reason":"no"}\\n{"type":"Unf')
os._exit(5)
"""
DEAF = "import signal; signal.pause()"
MASKED = """
import json, os, signal, sys
config = json.loads(sys.argv[1])
before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
from mainstay.worker.spawn import STOP_SIGNALS, leave_stopping_to_the_supervisor
leave_stopping_to_the_supervisor()
for number in STOP_SIGNALS:
    os.kill(os.getpid(), number)
after = signal.pthread_sigmask(signal.SIG_BLOCK, ())
os._exit(0 if before >= set(STOP_SIGNALS) and not after & set(STOP_SIGNALS) else 1)
"""


def config(link_fd: int, recorder_fd: int) -> EngineConfig:
    options = WorkerOptions(target="x:app", name="w")
    return EngineConfig(options=options, supervisor_pid=os.getpid(), link_fd=link_fd, recorder_fd=recorder_fd)


def started(script: str, heard: list[FromEngine]) -> EngineHandle:
    command: Sequence[str] = (sys.executable, "-c", script)
    return spawn(config, heard.append, command)


@pytest.mark.parametrize("pidfds", [True, False], ids=["pidfd", "thread"])
async def test_its_last_words_are_heard_before_its_death_is_told(pidfds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not pidfds:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    heard: list[FromEngine] = []
    process = started(LAST_WORDS, heard)

    assert await process.ended == 5

    assert heard == [Unfit("no")]
    process.close()


async def test_nothing_that_is_said_to_a_deaf_engine_waits_and_a_drain_is_kept_for_it() -> None:
    process = started(DEAF, [])
    for _ in range(20_000):
        process.send(Pulsed(session="s" * 100, known=True))
    process.send(Drain(1.0))
    assert bytes(process._unsent).endswith(b'{"type":"Drain","grace_s":1.0}\n')

    process.kill()

    assert await process.ended == -9
    process.send(Drain(0.0))
    process.close()


async def test_signals_that_stop_a_worker_do_not_reach_an_engine_at_any_time() -> None:
    process = started(MASKED, [])

    assert await process.ended == 0
    process.close()


async def test_what_cannot_be_started_leaves_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(FileNotFoundError):
        spawn(config, print, ["/nowhere/python"])

    assert len(os.listdir("/proc/self/fd")) == before
    await asyncio.sleep(0)
