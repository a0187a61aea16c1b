"""The app of `mainstay cluster up` when no other is named: something to submit to a new cluster."""

from __future__ import annotations

import asyncio
import os

from .. import App
from ..node import Node

app = App(os.environ.get("MAINSTAY_STORE", "memory:"))


@app.task(name="hello")
async def hello(name: str = "world") -> str:
    """Greet someone."""
    return f"hello, {name}"


@app.task(name="wait")
async def wait(seconds: float = 1.0) -> float:
    """Take a while."""
    await asyncio.sleep(seconds)
    return seconds


@app.node_job(name="whoami")
class WhoAmI:
    """Ask every node for its name."""

    async def local(self, node: Node) -> str:
        return node.name
