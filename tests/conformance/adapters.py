"""The adapters the suite runs against. A new one adds an entry here and passes, or is not an adapter."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mainstay.clock import Clock
from mainstay.stores import JobStore, open_store


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """How to make a fresh store, and whether opening it again finds what was there."""

    name: str
    url: str
    """`{folder}` stands for a folder of the test's own"""
    persistent: bool

    async def open(self, folder: Path, clock: Clock) -> JobStore:
        return await open_store(self.url.format(folder=folder), clock=clock)


ADAPTERS = (
    Adapter(name="memory", url="memory:", persistent=False),
    Adapter(name="sqlite", url="sqlite:///{folder}/jobs.db", persistent=True),
)
