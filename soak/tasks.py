"""The program of the fleet: a task that does nothing, so that the store and the worker do all the work there is."""

from __future__ import annotations

import os

from mainstay import App

app = App(os.environ.get("MAINSTAY_STORE", "memory:"))


@app.task
async def pass_through(number: int) -> int:
    return number
