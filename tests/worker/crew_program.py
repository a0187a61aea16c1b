"""A program for real engines under a supervisor: jobs that hang in every way there is."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time

from mainstay.model import Settings
from mainstay.worker import context
from tests.worker.program import Stage

stage = Stage(os.environ.get("CREW_STORE", "memory:"))
stage.settings = Settings.of(
    heartbeat="200ms", lease=os.environ.get("CREW_LEASE", "3s"), sweep=os.environ.get("CREW_SWEEP", "200ms")
)


async def goes_on() -> None:
    await asyncio.Event().wait()


async def takes(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def waits_for(path: str) -> str:
    while not await asyncio.to_thread(os.path.exists, path):
        await asyncio.sleep(0.01)
    return "done"


async def blocks_the_loop() -> None:
    time.sleep(600)


async def holds_the_interpreter() -> None:
    ctypes.pythonapi.sleep(600)


async def leaves() -> None:
    os._exit(3)


async def exits_in_a_task_of_its_own() -> None:
    async def helper() -> None:
        sys.exit(3)

    await asyncio.gather(helper())


def takes_in_a_thread(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


def moves_slowly(steps: int) -> str:
    for step in range(steps):
        context().progress(step + 1, steps)
        time.sleep(0.05)
    return "done"


def takes_apart(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


for function in (goes_on, takes, waits_for, blocks_the_loop, holds_the_interpreter, leaves, exits_in_a_task_of_its_own):
    stage.act(function, "loop")
stage.act(moves_slowly, "thread")
stage.act(takes_in_a_thread, "thread")
stage.act(takes_apart, "process")
