"""The app of the clusters of tests."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from mainstay import App, context
from mainstay.node import LeaderRun, Node, NodeResult

app = App("memory:")


@app.task(name="add")
async def add(a: int, b: int) -> int:
    return a + b


@app.task(name="where", process=True)
def where() -> str:
    return os.environ.get("MAINSTAY_STORE", "none")


@app.task(name="hold")
async def hold(file: str) -> int:
    """Runs until the file exists; the result is the number of the attempt."""
    while not Path(file).exists():
        await asyncio.sleep(0.05)
    return context().attempt


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
