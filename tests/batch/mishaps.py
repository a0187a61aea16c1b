"""A program whose workers meet a mishap at an exact place, when a file in its folder asks for it.

    kill-in-publish     a worker is killed before it vouches for the outputs of seed 3
    kill-in-planning    a worker is killed when its driver has made some of the units
    hold-planning       a driver stands still before it makes units, until `go-on` is there
    gate                units wait until `go` is there

Each happens once: whoever meets it takes the file away.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mainstay import App, Batch, Outputs
from mainstay.batch import driver
from mainstay.control import JobRequest
from mainstay.control.drivers import Drivers
from mainstay.model import Job
from mainstay.outputs.blobs import Blob
from mainstay.outputs.blobs.folder import FolderBlobs

FOLDER = Path(os.environ.get("CHAOS_FOLDER", "."))
_spawn, _write = Drivers.spawn, FolderBlobs.write


def asked(what: str) -> bool:
    """Whether this is to happen here; nobody else is asked again."""
    try:
        (FOLDER / what).rename(FOLDER / f"{what}.{os.getpid()}")
    except FileNotFoundError:
        return False
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def spawn(self: Drivers, job: Job, units: Iterable[JobRequest], *, reason: str) -> Job:
    if asked("hold-planning"):
        while not (FOLDER / "go-on").exists():
            time.sleep(0.01)  # the loop stands still with it, as that of a frozen process
    made = await _spawn(self, job, units, reason=reason)
    if reason.startswith("20 units") and asked("kill-in-planning"):
        die()
    return made


async def write(self: FolderBlobs, path: str, source: bytes | Path) -> Blob:
    if "-s3-" in path and "/_entry-" in path and asked("kill-in-publish"):
        die()
    return await _write(self, path, source)


def trace(what: str) -> None:
    handle = os.open(FOLDER / "ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{what}\n".encode())
    finally:
        os.close(handle)


def program(url: str, outputs: str | None, *, crash_budget: int = 50) -> tuple[App, Batch]:
    """The app and its study: for the workers, and for the test that submits, whose crash budget counts."""
    app = App(url, outputs=outputs)

    def count(params: dict[str, Any], runs: list[Any]) -> int:
        return len(runs)

    @app.batch(
        name="study",
        outputs={"result": "result.txt"},
        aggregate=count,
        version="1",
        retries=0,
        crash_budget=crash_budget,
    )
    async def study(params: dict[str, Any], seed: int, out: Outputs) -> None:
        trace(f"n={params['n']}-s{seed}")
        while (FOLDER / "gate").exists() and not (FOLDER / "go").exists():
            await asyncio.sleep(0.01)
        out.save("result", str(seed).encode())

    return app, study


if "CHAOS_FOLDER" in os.environ:
    driver._CHUNK = 10
    Drivers.spawn, FolderBlobs.write = spawn, write  # type: ignore[method-assign]
app, _ = program(os.environ.get("MAINSTAY_STORE", "memory:"), os.environ.get("STUDY_OUTPUTS"))
