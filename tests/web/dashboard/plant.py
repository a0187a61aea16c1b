"""A program to look at: tasks that run as long as a test wants, a schedule, a study that can fail."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from mainstay import App, Outputs, context


class CardRefused(Exception):
    """What a shop fails with."""


class Plant:
    """The program of a folder. A worker runs it as `plant:app`; a test makes one of its own to submit with."""

    def __init__(self, folder: Path) -> None:
        self.app = app = App(f"sqlite:///{folder}/jobs.db", outputs=f"file:{folder}/outputs")

        @app.task(name="order.ship", queue="orders", retries=0)
        async def ship(order: int, address: dict[str, str], gate: str = "") -> dict[str, int]:
            """Goes on until its gate, a file, is there."""
            here = context()
            for done in range(1, 4):
                here.progress(done, 4, f"packing {done} of 3")
                await asyncio.sleep(0.05)
            while gate and not (folder / gate).exists():
                await asyncio.sleep(0.05)
            return {"order": order, "parcels": 2}

        @app.task(name="card.charge", queue="payments", retries=0)
        async def charge(order: int, token: str = "") -> str:
            """Fails until the bank is open."""
            if not (folder / "bank-open").exists():
                raise CardRefused(f"the bank refused the card of order {order}")
            return f"paid with {token[:1]}"

        @app.schedule("1h", name="sums")
        @app.task(name="report.sums", queue="reports")
        async def sums() -> int:
            """What a schedule runs."""
            return 42

        # the worker and the tests import this file under two names, so its version is given by hand
        @app.batch(name="simulate", outputs={"peak": "peak.json"}, version="1", retries=0)
        def simulate(params: dict[str, float], seed: int, out: Outputs) -> None:
            """Fails for some while the disk is full."""
            if (folder / "disk-full").exists() and params["beta"] > 0.5 and seed > 0:
                raise OSError("no space left on device")
            out["peak"].write_text(f"{params['beta'] * 100 + seed}")

        self.ship, self.charge, self.sums, self.simulate = ship, charge, sums, simulate


app = Plant(Path(os.environ.get("PLANT", "."))).app
