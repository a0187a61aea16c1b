"""The program of the nodes that are killed, frozen and restarted: node jobs that leave a trace of every run in a file.

Traces are lines of `at what job token pid`, as `tests.chaos.fleet` reads them: `what` is `begin/NODE`, `end/NODE`,
`stopped/NODE`, `leader` or `leader-end`. Waits end when a file appears, so that tests decide how long a run takes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import msgspec

from mainstay import App, LeaderRun, Node, NodeJob, NodeResult


def trace(what: str, job_id: str, token: int) -> None:
    line = f"{time.monotonic():.3f} {what} {job_id} {token} {os.getpid()}\n"
    handle = os.open(_folder() / "trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def _folder() -> Path:
    return Path(os.environ["CHAOS_FOLDER"])


async def gate(name: str, node: str = "") -> None:
    """Wait for a gate that is open for all nodes or for this one."""
    while not ((_folder() / name).exists() or (_folder() / f"{name}.{node}").exists()):
        await asyncio.sleep(0.01)


class Summary(msgspec.Struct):
    nodes: list[str]
    token: int
    pid: int


class Gated:
    async def local(self, node: Node, local_gate: str = "", leader_gate: str = "", freezes: str = "") -> str:
        trace(f"begin/{node.name}", node.job_id, node.token)
        try:
            if local_gate:
                await gate(local_gate, node.name)
        except asyncio.CancelledError:
            trace(f"stopped/{node.name}", node.job_id, node.token)
            raise
        while freezes == node.name and not (_folder() / "thaw").exists():
            # the loop stands still until it is thawed: the next thing that it does is to store the end of this run
            os.kill(os.getpid(), signal.SIGSTOP)
        trace(f"end/{node.name}", node.job_id, node.token)
        return node.name

    async def leader(
        self, results: list[NodeResult], run: LeaderRun, local_gate: str = "", leader_gate: str = "", freezes: str = ""
    ) -> Summary:
        trace("leader", run.job_id, run.token)
        if leader_gate:
            await gate(leader_gate)
        trace("leader-end", run.job_id, run.token)
        return Summary([each.node for each in results], run.token, os.getpid())


def gated(app: App) -> NodeJob:
    """The job, declared on an app: the one of a worker, or that of a test that submits."""
    return app.node_job(name="gated", quorum_wait="1m")(Gated)


app = App(os.environ.get("MAINSTAY_STORE", "memory:"))
gated(app)
