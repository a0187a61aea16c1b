"""The program of the fleets that are killed: tasks that leave a trace of every run in a file.

Traces are appended with one write each, so that a kill leaves whole lines. Waits end when a file appears, so that
tests decide how long a job takes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import time
from pathlib import Path

from mainstay import App, context

app = App(os.environ.get("MAINSTAY_STORE", "memory:"))
FOLDER = Path(os.environ.get("CHAOS_FOLDER", "."))


def trace(what: str) -> None:
    """Say what happens to the job that runs here."""
    job = context().job
    line = f"{time.monotonic():.3f} {what} {job.id} {job.token} {os.getpid()}\n"
    handle = os.open(FOLDER / "trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


async def gate(name: str) -> None:
    while not (FOLDER / name).exists():
        await asyncio.sleep(0.01)


@app.task
async def quick(number: int) -> int:
    trace("start")
    return number


@app.task
async def naps(number: int) -> int:
    trace("start")
    await asyncio.sleep(random.Random(number).uniform(0, 0.2))
    trace("end")
    return number


@app.task
def in_thread(number: int) -> int:
    trace("start")
    time.sleep(random.Random(number).uniform(0, 0.1))
    trace("end")
    return number


@app.task(process=True)
def in_child(number: int) -> int:
    trace("start")
    time.sleep(random.Random(number).uniform(0, 0.1))
    trace("end")
    return number


@app.task
async def waits(gate_name: str) -> str:
    trace("start")
    await gate(gate_name)
    trace("end")
    return "waited"


@app.task
async def fails_once() -> str:
    trace("start")
    if context().job.failures == 0:
        raise RuntimeError("the first time")
    return "done"


@app.task
async def poison(number: int) -> None:
    trace("start")
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task
async def kills_its_worker() -> None:
    """As a job that exhausts the memory of its control group does: the supervisor goes, and all with it."""
    trace("start")
    supervisor = os.getppid()
    if b"engine_main" not in Path("/proc/self/cmdline").read_bytes():  # in a child: its parent is the engine
        supervisor = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    await asyncio.sleep(3600)


@app.task
async def blocks_the_loop() -> None:
    trace("start")
    while True:
        pass


@app.task
def holds_the_interpreter() -> None:
    """A call into native code that neither returns nor lets anything else run."""
    trace("start")
    ctypes.PyDLL(None).sleep(3600)


@app.task
def deaf_thread() -> None:
    trace("start")
    time.sleep(3600)


@app.task
async def climbs(steps: int, pause_s: float) -> int:
    trace("start")
    for step in range(steps):
        await asyncio.sleep(pause_s)
        context().progress(step + 1, steps)
    return steps


@app.task(process=True)
async def child_waits(gate_name: str) -> str:
    trace("start")
    await gate(gate_name)
    return "waited"


@app.task(retries=0)
async def saves(gate_name: str) -> int:
    """Saves a checkpoint every tenth of a second until the gate opens, and asks for what else the store knows."""
    step = 0
    while not (FOLDER / gate_name).exists():
        await asyncio.sleep(0.1)
        step += 1
        context().progress(step)
        await context().save(step)
        await context().inputs()
        if step == 3:
            trace("saved")
    return step


def _saves_sync(gate_name: str) -> int:
    step = 0
    while not (FOLDER / gate_name).exists():
        time.sleep(0.1)
        step += 1
        context().progress(step)
        context().save_sync(step)
        context().inputs_sync()
        if step == 3:
            trace("saved")
    return step


@app.task(retries=0)
def saves_in_thread(gate_name: str) -> int:
    return _saves_sync(gate_name)


@app.task(retries=0, process=True)
def saves_in_child(gate_name: str) -> int:
    return _saves_sync(gate_name)


@app.task
async def busy(for_s: float) -> None:
    trace("start")
    ends = time.monotonic() + for_s
    while time.monotonic() < ends:
        pass
