"""A study whose units run outside, for real processes. Copied into a folder of its own, where everything is kept."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mainstay import App, Outputs
from mainstay.batch.runners import ExecRunner, OutsideStatus, ProcessRunner, Runner

HERE = Path(__file__).parent
SPOOL = HERE / "spool"


def scheduler() -> ExecRunner:
    call = shlex.join([sys.executable, str(HERE / "scheduler.py"), str(SPOOL)])
    return ExecRunner(
        submit=f"{call} submit {{name}} {{line}}",
        status=f"{call} status {{handle}}",
        cancel=f"{call} cancel {{handle}}",
        find=f"{call} find {{name}}",
        every="100ms",
    )


class KillsItsWorker:
    """A runner whose worker dies between a start and the note of it, once."""

    every_s = 0.1

    def __init__(self, inner: Runner) -> None:
        self._inner = inner

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        handle = await self._inner.start(name, command, env)
        if not (HERE / "killed").exists():
            (HERE / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return handle

    async def look(self, handle: str, name: str) -> OutsideStatus:
        return await self._inner.look(handle, name)

    async def stop(self, handle: str, name: str) -> None:
        await self._inner.stop(handle, name)


app = App(
    f"sqlite:///{HERE}/jobs.db",
    outputs=f"file://{HERE}/outputs?sync=off",
    heartbeat="200ms",
    lease="3s",
    sweep="200ms",
    poll="200ms",
    runners={
        "spool": scheduler(),
        "process-killed": KillsItsWorker(ProcessRunner()),
        "spool-killed": KillsItsWorker(scheduler()),
    },
)


def total(runs: list[Any]) -> int:
    return len(runs)


@app.batch(name="lab", outputs={"result": "result.txt"}, retries=0, aggregate=total)
async def simulate(params: dict[str, int], seed: int, out: Outputs) -> None:
    """One seed may be told to wait for a file."""
    while seed == params["waits"] and not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    out.save("result", str(seed).encode())


@app.batch(name="plain", outputs={"result": "result.txt"}, retries=0)
async def plain(params: dict[str, int], seed: int, out: Outputs) -> None:
    """The same, without an aggregation."""
    await simulate.unit.function(params, seed, out)
