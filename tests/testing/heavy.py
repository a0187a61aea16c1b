"""An app whose tasks want processes of their own."""

from __future__ import annotations

import os

from mainstay import App

app = App("memory:")


@app.task(name="heavy.where", process=True)
def where() -> int:
    return os.getpid()


@app.task(name="heavy.leaves", process=True, crash_budget=1)
def leaves() -> None:
    os._exit(3)
