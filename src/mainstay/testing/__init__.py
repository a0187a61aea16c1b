"""Tests of users' jobs: a harness that runs an app's jobs in virtual time, the memory store, and ready-made rows.

Layer: above app. Start from `Harness`. Names are loaded on first use, because pytest loads the plugin of this package
at every start.

>>> import asyncio
>>> from mainstay import App
>>> from mainstay.testing import Harness
>>> app = App("memory:")
>>> @app.task(name="mail.welcome", retries=2)
... async def welcome(to: str) -> str:
...     return f"hello {to}"
>>> async def story():
...     async with Harness(app) as box:
...         job = await welcome.options(delay="1h").submit("bob")
...         await box.drain()
...         return await job.result()
>>> asyncio.run(story())
'hello bob'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ..stores.memory import MemoryStore
    from .clock import VirtualClock
    from .faulty_bus import BusFaults, FaultyBusNetwork
    from .faulty_store import FaultyStore, StoreFaults
    from .harness import Harness
    from .results import DrainError, DrainResult, RanJob, SubmittedJob
    from .rows import a_job, new_job
    from .virtual_loop import Deadlock, HostClock, LoopClock, SimulatedHost, VirtualLoop, run_virtual

__all__ = [
    "BusFaults",
    "Deadlock",
    "DrainError",
    "DrainResult",
    "FaultyBusNetwork",
    "FaultyStore",
    "Harness",
    "HostClock",
    "LoopClock",
    "MemoryStore",
    "RanJob",
    "SimulatedHost",
    "StoreFaults",
    "SubmittedJob",
    "VirtualClock",
    "VirtualLoop",
    "a_job",
    "new_job",
    "run_virtual",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "..stores.memory": "MemoryStore",
        ".clock": "VirtualClock",
        ".faulty_bus": "BusFaults FaultyBusNetwork",
        ".faulty_store": "FaultyStore StoreFaults",
        ".harness": "Harness",
        ".results": "DrainError DrainResult RanJob SubmittedJob",
        ".rows": "a_job new_job",
        ".virtual_loop": "Deadlock HostClock SimulatedHost LoopClock VirtualLoop run_virtual",
    },
)
