"""The app of the clusters of tests."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from mainstay import Aggregate, App, Batch, Outputs, context
from mainstay.batch import UnitResult
from mainstay.node import LeaderRun, Node, NodeResult

app = App("memory:")

#: the file that many tasks of this process wait for, and the one task that looks
_looks: dict[str, asyncio.Task[None]] = {}


@app.task(name="add")
async def add(a: int, b: int) -> int:
    return a + b


@app.task(name="where", process=True)
def where() -> str:
    return os.environ.get("MAINSTAY_STORE", "none")


@app.task(name="hold")
async def hold(file: str) -> int:
    """Runs until the file exists; the result is the number of the attempt."""
    look = _looks.get(file)
    if look is None:
        look = _looks[file] = asyncio.create_task(_exists(Path(file)))
    await asyncio.shield(look)
    return context().attempt


@app.task(name="hold_attempt")
async def hold_attempt(folder: str) -> int:
    """Runs until the folder has a file with the number of this attempt."""
    await _exists(Path(folder) / str(context().attempt))
    return context().attempt


@app.task(name="hold_process", process=True)
def hold_process(file: str) -> int:
    """In a process of its own, which ends only with the file or by force."""
    while not Path(file).exists():
        time.sleep(0.05)
    return os.getpid()


async def _exists(path: Path) -> None:
    while not path.exists():  # another process makes it
        await asyncio.sleep(0.05)


@app.task(name="chain")
async def chain() -> str:
    child = await add.submit(20, 22)
    return child.id


@app.node_job(name="names")
class Names:
    async def local(self, node: Node) -> str:
        return node.name

    async def leader(self, results: list[NodeResult], run: LeaderRun) -> list[str]:
        return sorted(result.result for result in results)


names: Any = Names


def squares_of(app: App) -> Batch:
    """The batch of an app: for the nodes, and for a test that submits it with its own folder of outputs."""

    def total(runs: list[UnitResult], out: Outputs) -> None:
        out.save("total", str(sum(int(unit.read()) for unit in runs)).encode())

    @app.batch(
        name="squares",
        outputs={"square": "square.txt"},
        aggregate=Aggregate(total, {"total": "total.txt"}),
        version="1",
    )
    def squares(seed: int, out: Outputs) -> None:
        out.save("square", str(seed * seed).encode())

    return squares


squares_of(app)


@app.task(name="talk")
async def talk(name: str, file: str) -> None:
    """Prints, waits for the file, and prints more."""
    print(f"{name} begins")
    while not Path(file).exists():
        await asyncio.sleep(0.05)
    await asyncio.to_thread(print, f"{name} in a thread")


@app.task(name="talk_apart", process=True)
def talk_apart(name: str) -> int:
    print(f"{name} apart")
    context().log.warning("logged")
    return 1
