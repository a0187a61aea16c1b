"""The program of the nodes that are measured. Each run of `local` leaves a line: when, on which node, of which job."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from mainstay import App, Node, NodeJob, NodeResult

#: where lines and gates are
FOLDER = "BENCH_FOLDER"


class Touch:
    """Does nothing; with `gate`, it waits until that file exists."""

    async def local(self, node: Node, gate: str = "") -> str:
        # the clock is the same for all processes of the machine
        line = f"{time.monotonic():.6f} {node.name} {node.job_id}\n"
        folder = Path(os.environ[FOLDER])
        handle = os.open(folder / "begun", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
        while gate and not (folder / gate).exists():  # noqa: ASYNC110 - another process opens the gate
            await asyncio.sleep(0.05)
        return node.name

    async def leader(self, results: list[NodeResult], gate: str = "") -> int:  # noqa: ARG002 - as `local`
        return len(results)


def declare(app: App) -> NodeJob:
    """The job, on the app of a worker or of the one that submits."""
    return app.node_job(name="touch", stragglers="1s", quorum_wait="10m")(Touch)


app = App(os.environ.get("MAINSTAY_STORE", "memory:"))
declare(app)
