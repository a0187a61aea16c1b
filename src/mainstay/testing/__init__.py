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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..stores.memory import MemoryStore
    from .clock import VirtualClock
    from .harness import Harness
    from .results import DrainError, DrainResult, RanJob, SubmittedJob
    from .rows import a_job, new_job

__all__ = [
    "DrainError",
    "DrainResult",
    "Harness",
    "MemoryStore",
    "RanJob",
    "SubmittedJob",
    "VirtualClock",
    "a_job",
    "new_job",
]

_HOMES = {
    "DrainError": ".results",
    "DrainResult": ".results",
    "Harness": ".harness",
    "MemoryStore": "..stores.memory",
    "RanJob": ".results",
    "SubmittedJob": ".results",
    "VirtualClock": ".clock",
    "a_job": ".rows",
    "new_job": ".rows",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
